-- A turn's messages and the events that reveal them; `ends` releases the lease.
-- KEYS state messages answers runs log | ARGV fence step lease ttl log_ttl channel run ends owed last record message*
local keys = {state = KEYS[1], messages = KEYS[2], answers = KEYS[3], runs = KEYS[4], log = KEYS[5]}
local fence, step, lease, ttl, log_ttl, channel, run, ends, owed, last, record = unpack(ARGV, 1, 11)

local version, held, running, epoch, done, seq, ended, count = unpack(redis.call('HMGET', keys.state,
  'version', 'fence', 'running', 'epoch', 'step', 'seq', 'ended', 'count'))
local mark = fence .. '|' .. step
if ended == mark then return 'done' end
if held ~= fence or running ~= '1' then return 'lost' end
if tonumber(step) <= tonumber(done) then return 'done' end
check_parts(keys, tonumber(count))
-- nothing above this line writes

for i = 12, #ARGV do redis.call('RPUSH', keys.messages, ARGV[i]) end
if record ~= '' and tonumber(last) > tonumber(seq) then
  redis.call('XADD', keys.log, epoch .. '-' .. last, 'events', record)
  redis.call('HSET', keys.state, 'seq', last)
end
redis.call('HSET', keys.state, 'version', digits(version + 1), 'step', step, 'owed', owed,
  'expires', digits(now + lease), 'count', digits(count + #ARGV - 11))
if ends == '1' then redis.call('HSET', keys.state, 'running', '0', 'ended', mark) end
keep(keys, ttl)
keep_log(keys, run, log_ttl)
redis.call('PUBLISH', channel, '')
return 'done'
