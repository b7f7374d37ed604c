"""Any number of models on any set of problems: how good each is, and which problems one solves that another does not."""
