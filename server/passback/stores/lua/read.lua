-- KEYS state messages answers | ARGV from to with_tools call*
local state = redis.call('HMGET', KEYS[1], 'version', 'run', 'running', 'expires', 'owed', 'count')
if not state[1] then return false end
local lapsed = 0
if state[3] == '1' and tonumber(state[4]) <= now then lapsed = 1 end
local tools = false
if ARGV[3] == '1' then tools = redis.call('HGET', KEYS[1], 'tools') end
local messages = redis.call('LRANGE', KEYS[2], ARGV[1], ARGV[2])
local answers = {}
for i = 4, #ARGV do answers[i - 3] = redis.call('HGET', KEYS[3], ARGV[i]) end
return {state[1], state[2], state[3], lapsed, state[5], state[6], tools, messages, answers}
