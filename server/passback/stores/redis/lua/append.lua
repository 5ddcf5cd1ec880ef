-- Add events to the logs of runs and renew their leases; without a record renew the lease only.
-- KEYS (state log)* | ARGV lease log_ttl max_log_bytes (fence channel own first last record)*
-- `own` is 1 if the writer itself listens on the channel.
-- Return the state of each run's lease, or the error that its conversation met: one damaged
-- conversation does not stop the others.
local lease, log_ttl, max_log_bytes = ARGV[1], ARGV[2], tonumber(ARGV[3])

local function append(state, log, fence, channel, own, first, last, record)
  local known_fence, running, epoch, seq, cancelled, log_bytes = unpack(redis.call('HMGET', state,
    'fence', 'running', 'epoch', 'seq', 'cancelled', 'log_bytes'))
  if known_fence ~= fence or running ~= '1' then return 'lost' end
  if not follows_log(seq, first, last) then return 'lost' end
  -- nothing above this line writes

  local listeners, lease_expires = 0, digits(now + lease)
  if record ~= '' and tonumber(last) > tonumber(seq) then
    local id = epoch .. '-' .. last
    log_bytes = add_entry(log, id, record, tonumber(log_bytes), max_log_bytes)
    redis.call('PEXPIRE', log, log_ttl)
    redis.call('HSET', state,
      'seq', last, 'log_bytes', digits(log_bytes), 'lease_expires', lease_expires)
    listeners = redis.call('PUBLISH', channel, '')
  else
    redis.call('HSET', state, 'lease_expires', lease_expires)
  end
  if cancelled == '1' then return 'cancelled' end
  return listeners > tonumber(own) and 'followed' or 'held'
end

local answers = {}
for run = 1, #KEYS / 2 do
  local done, answer = pcall(
    append, KEYS[2 * run - 1], KEYS[2 * run], unpack(ARGV, 6 * run - 2, 6 * run + 3))
  -- Redis raises tables with `err`, Lua raises strings
  if not done then
    answer = redis.error_reply(type(answer) == 'table' and answer.err or answer)
  end
  answers[run] = answer
end
return answers
