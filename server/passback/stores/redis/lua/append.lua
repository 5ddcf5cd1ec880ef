-- Events for the logs of runs, and their renewed leases; without a record only the lease.
-- KEYS (state log)* | ARGV lease log_ttl log_bytes (fence channel first last record)*
-- Gives for each run what its lease is, and by that whether anybody heard of the events, or the error that it met: one damaged conversation does not stop the others.
local lease, log_ttl, log_bytes = ARGV[1], ARGV[2], tonumber(ARGV[3])

local function append(state, log, fence, channel, first, last, record)
  local held, running, epoch, seq, cancelled, bytes = unpack(redis.call('HMGET', state,
    'fence', 'running', 'epoch', 'seq', 'cancelled', 'bytes'))
  if held ~= fence or running ~= '1' or not follows(seq, first, last) then return 'lost' end
  -- nothing above this line writes

  local heard = 0
  if record ~= '' and tonumber(last) > tonumber(seq) then
    bytes = add_entry(log, epoch .. '-' .. last, record, tonumber(bytes), log_bytes)
    redis.call('PEXPIRE', log, log_ttl)
    redis.call('HSET', state, 'seq', last, 'bytes', digits(bytes), 'expires', digits(now + lease))
    heard = redis.call('PUBLISH', channel, '')
  else
    redis.call('HSET', state, 'expires', digits(now + lease))
  end
  if cancelled == '1' then return 'cancelled' end
  return heard > 0 and 'followed' or 'held'
end

local answers = {}
for run = 1, #KEYS / 2 do
  local done, answer = pcall(append, KEYS[2 * run - 1], KEYS[2 * run], unpack(ARGV, 5 * run - 1, 5 * run + 3))
  if not done then answer = redis.error_reply(type(answer) == 'table' and answer.err or answer) end
  answers[run] = answer
end
return answers
