-- Events for the logs of runs, and their renewed leases; without a record only the lease.
-- KEYS (state log)* | ARGV lease log_ttl (fence channel last record)*
-- Gives for each run what its lease is, or the error that it met: one damaged conversation does not stop the others.
local lease, log_ttl = ARGV[1], ARGV[2]

local function append(state, log, fence, channel, last, record)
  local held, running, epoch, seq, cancelled = unpack(redis.call('HMGET', state,
    'fence', 'running', 'epoch', 'seq', 'cancelled'))
  if held ~= fence or running ~= '1' then return 'lost' end
  -- nothing above this line writes

  if record ~= '' and tonumber(last) > tonumber(seq) then
    redis.call('XADD', log, epoch .. '-' .. last, 'events', record)
    redis.call('PEXPIRE', log, log_ttl)
    redis.call('HSET', state, 'seq', last)
    redis.call('PUBLISH', channel, '')
  end
  redis.call('HSET', state, 'expires', digits(now + lease))
  return cancelled == '1' and 'cancelled' or 'held'
end

local answers = {}
for run = 1, #KEYS / 2 do
  local done, answer = pcall(append, KEYS[2 * run - 1], KEYS[2 * run], unpack(ARGV, 4 * run - 1, 4 * run + 2))
  if not done then answer = redis.error_reply(type(answer) == 'table' and answer.err or answer) end
  answers[run] = answer
end
return answers
