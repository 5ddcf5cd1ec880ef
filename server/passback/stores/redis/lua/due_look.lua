-- KEYS state queue
-- Gives -1 when nothing is to be done for a conversation, else the milliseconds until somebody may have to do it:
-- a run that ended with posts behind it has left its worker the time of a lease to go on with them.
local running, expires = unpack(redis.call('HMGET', KEYS[1], 'running', 'expires'))
if expires and (running == '1' or redis.call('LLEN', KEYS[2]) > 0) then return math.max(0, expires - now) end
return -1
