"""Two agents of one server, on the model of its settings: `passback serve tests.support.two_agents:first ...:second`."""

from passback import Agent

first = Agent(prompt="You are the first.")
second = Agent(prompt="You are the second.")
