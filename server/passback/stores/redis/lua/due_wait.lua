-- KEYS state queue
-- Return the milliseconds until a conversation may need recovery, or -1 when it needs none. A run
-- that ended with posts behind it leaves its worker the time of a lease to go on with them.
local running, lease_expires, answer_by = unpack(
  redis.call('HMGET', KEYS[1], 'running', 'lease_expires', 'answer_by'))
local due_at = math.huge
if lease_expires and (running == '1' or redis.call('LLEN', KEYS[2]) > 0) then
  due_at = tonumber(lease_expires)
end
if running ~= '1' and answer_by then due_at = math.min(due_at, answer_by) end
return due_at == math.huge and -1 or math.max(0, due_at - now)
