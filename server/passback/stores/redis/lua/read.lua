-- KEYS state messages answers | ARGV first last size with_tools call*
local SLICE = 10

-- Messages of a range, as many as fit in `size` bytes, but the first in any case; 0 for all of them.
local function range(key, first, last, size)
  if size == 0 then return redis.call('LRANGE', key, first, last) end
  local found, total = {}, 0
  for start = first, last, SLICE do
    local slice = redis.call('LRANGE', key, start, math.min(start + SLICE - 1, last))
    for _, message in ipairs(slice) do
      total = total + #message
      if #found > 0 and total > size then return found end
      found[#found + 1] = message
    end
    if #slice < SLICE then break end
  end
  return found
end

local state = redis.call('HMGET', KEYS[1], 'version', 'run', 'running', 'expires', 'owed', 'count')
if not state[1] then return false end
local lapsed = 0
if state[3] == '1' and tonumber(state[4]) <= now then lapsed = 1 end
local tools = false
if ARGV[4] == '1' then tools = redis.call('HGET', KEYS[1], 'tools') end
local messages = range(KEYS[2], tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]))
local answers = {}
for i = 5, #ARGV do answers[i - 4] = redis.call('HGET', KEYS[3], ARGV[i]) end
return {state[1], state[2], state[3], lapsed, state[5], state[6], tools, messages, answers}
