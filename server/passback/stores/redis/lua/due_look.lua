-- KEYS state queue
-- Gives -1 when nothing is to be done for a conversation, else the milliseconds until somebody may have to do it:
-- a run that ended with posts behind it has left its worker the time of a lease to go on with them.
local running, expires, answer_by = unpack(redis.call('HMGET', KEYS[1], 'running', 'expires', 'answer_by'))
local at = math.huge
if expires and (running == '1' or redis.call('LLEN', KEYS[2]) > 0) then at = tonumber(expires) end
if running ~= '1' and answer_by then at = math.min(at, answer_by) end
return at == math.huge and -1 or math.max(0, at - now)
