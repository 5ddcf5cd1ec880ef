-- Add entries to the logs of runs and renew their leases; without a record renew the lease only.
-- KEYS (state log logs)* | ARGV lease (fence channel epoch size last record)*
-- Return for each the number of listeners, a space and the lease's signal; false if the lease is
-- not held or the entry does not follow; or its error: one damaged conversation spares the others.
local expires = digits(now + ARGV[1])

local function append(state, log, logs, fence, channel, epoch, size, last, record)
  local known_fence, seq, log_bytes, signal = unpack(
    redis.call('HMGET', state, 'fence', 'seq', 'log_bytes', 'signal'))
  if not known_fence or known_fence == '' or known_fence ~= fence then return false end
  if last == '' or last - seq <= 0 then
    redis.call('HSET', state, 'expires', expires)
    return '0 ' .. signal
  end
  if last - size - seq ~= 0 then return false end
  local bytes = tonumber(log_bytes) or select(2, entries_after(log, '0-0'))
  -- nothing above this line writes

  if log_bytes == '' then redis.call('ZADD', logs, 'inf', string.match(log, ':log:(.*)$')) end
  bytes = add_entry(log, bytes, epoch .. '-' .. last, size, record)
  redis.call('PEXPIRE', log, RUNNING_LOG)
  redis.call('HSET', state, 'seq', last, 'log_bytes', digits(bytes), 'expires', expires)
  local listeners = redis.call('PUBLISH', channel, '')
  return (listeners > 0 and listeners or '0') .. ' ' .. signal
end

local answers = {}
for run = 1, #KEYS / 3 do
  local key, first = 3 * run, 6 * run - 4
  local done, answer = pcall(
    append, KEYS[key - 2], KEYS[key - 1], KEYS[key], unpack(ARGV, first, first + 5))
  -- Redis raises tables with `err`, Lua raises strings
  local text = not done and (type(answer) == 'table' and answer.err or answer)
  answers[run] = text and redis.error_reply(text) or answer
end
return answers
