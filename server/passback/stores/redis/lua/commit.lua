-- A turn's messages and the events that reveal them; `ends` releases the lease.
-- KEYS state messages receipts runs queue log [due]
-- ARGV fence step lease member channel idle busy log_ttl log_bytes run ends cut owed within state boundary
--   committed open_turns first last record message*
-- `within`: milliseconds for the client to answer what it owes; empty for ever. `committed`: empty for the last event, and
-- then `open_turns` is empty, too.
-- Gives whether the run has ended and posts wait, or false when the lease was lost.
local fence, step, lease, member, channel, idle, busy = unpack(ARGV, 1, 7)
local log_ttl, log_bytes, run, ends, cut, owed, within, state, boundary, committed, open_turns, first, last,
  record = unpack(ARGV, 8, 21)

local version, held, running, epoch, done, seq, ended, count, bytes, read_from, history = unpack(
  redis.call('HMGET', keys.state, 'version', 'fence', 'running', 'epoch', 'step', 'seq', 'ended', 'count', 'bytes',
    'boundary', 'history'))
local mark = fence .. '|' .. step
if ended == mark then return posts_wait() and 1 or 0 end
if held ~= fence or running ~= '1' then return false end
if tonumber(step) <= tonumber(done) then return 0 end
if not follows(seq, first, last) then return false end
check_parts(tonumber(count))
local reads = tonumber(state ~= '' and boundary or read_from or 0)
local follows = reads == tonumber(read_from or 0)
history = history_bytes(follows and history, reads, tonumber(count), 22, #ARGV)
-- nothing above this line writes

for i = 22, #ARGV do redis.call('RPUSH', keys.messages, ARGV[i]) end
if record ~= '' and tonumber(last) > tonumber(seq) then
  seq, bytes = last, add_entry(keys.log, epoch .. '-' .. last, record, tonumber(bytes), tonumber(log_bytes))
end
redis.call('HSET', keys.state, 'version', digits(version + 1), 'step', step, 'owed', owed,
  'expires', digits(now + lease), 'count', digits(count + #ARGV - 21), 'seq', seq,
  'committed', epoch .. '-' .. (committed ~= '' and committed or seq), 'open_turns', open_turns,
  'bytes', digits(bytes), 'history', digits(history))
if state ~= '' then redis.call('HSET', keys.state, 'state', state, 'boundary', boundary) end
if ends == '1' then redis.call('HSET', keys.state, 'running', '0', 'ended', mark, 'cut', cut) end
local waits = ends == '1' and posts_wait()
if ends == '1' then
  local after = waits and tonumber(lease) or nil
  if within ~= '' then
    redis.call('HSET', keys.state, 'answer_by', digits(now + within))
    after = math.min(after or math.huge, tonumber(within))
  end
  look(member, after)
end
keep((ends ~= '1' or waits) and busy or idle)
keep_log(run, log_ttl)
redis.call('PUBLISH', channel, '')
return waits and 1 or 0
