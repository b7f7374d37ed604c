"""A research loop of one's own: the environment asks, verifies and shares; models, loss and optimizer are yours."""

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import mrl_env
from algorithms.pools import embedded_path

folders = {"policy_0": embedded_path("tiny-llama"), "policy_1": embedded_path("tiny-qwen3")}
models = {name: AutoModelForCausalLM.from_pretrained(folder) for name, folder in folders.items()}
tokenizers = {name: AutoTokenizer.from_pretrained(folder) for name, folder in folders.items()}
optimizers = {name: torch.optim.AdamW(model.parameters(), lr=1e-4) for name, model in models.items()}


def prompt_of(agent, problem):
    return tokenizers[agent].apply_chat_template(list(problem.messages), add_generation_prompt=True, tokenize=False)


def complete(agent, problem):
    prompt = tokenizers[agent](prompt_of(agent, problem), add_special_tokens=False, return_tensors="pt")
    tokens = models[agent].generate(**prompt, do_sample=True, num_return_sequences=4, max_new_tokens=48)
    return tokenizers[agent].batch_decode(tokens[:, prompt["input_ids"].shape[1] :], skip_special_tokens=True)


torch.manual_seed(0)
env = mrl_env.make("arithmetic-mutual-v0", problems_per_episode=4, generations=4, channels=["rollouts", "rewards"])
for episode in range(3):
    _, infos = env.reset(seed=0, options={"episode": episode})
    actions = {agent: [complete(agent, problem) for problem in infos[agent]["problems"]] for agent in env.agents}
    observations, rewards, terminations, truncations, infos = env.step(actions)
    if episode == 0:
        print(env.render())
    for agent, observation in observations.items():
        losses = []
        for problem, peers in zip(infos[agent]["problems"], mrl_env.peer_experiences(observation), strict=True):
            for peer in (record for record in peers if record.success):
                text = prompt_of(agent, problem) + peer.text + tokenizers[agent].eos_token
                tokens = tokenizers[agent](text, add_special_tokens=False, return_tensors="pt")
                losses.append(models[agent](**tokens, labels=tokens["input_ids"]).loss)  # your own loss goes here
        if losses:
            torch.stack(losses).mean().backward()
            optimizers[agent].step()
            optimizers[agent].zero_grad()
        print(f"episode {episode}: {agent} earned {rewards[agent]:.2f}, peer successes learnt from: {len(losses)}")
