-- Write a turn's messages and the events that reveal them; `ends` releases the lease.
-- KEYS state messages receipts runs queue log [due]
-- ARGV fence step lease member channel idle_ttl running_ttl log_ttl max_log_bytes run_id ends
--   stopped_early owed answer_within state history_start committed open_turns first last record
--   message*
-- `answer_within`: milliseconds for the client to answer what it owes; empty for ever.
-- `committed`: empty for the last event, and then `open_turns` is empty, too.
-- Return whether the run has ended and posts wait, or false when the lease was lost.
local FIRST_MESSAGE = 22  -- its place in ARGV
local fence, step, lease, member, channel, idle_ttl, running_ttl = unpack(ARGV, 1, 7)
local log_ttl, max_log_bytes, run_id, ends, stopped_early, owed, answer_within, state,
  history_start, committed, open_turns, first, last, record = unpack(ARGV, 8, 21)

local version, known_fence, running, epoch, known_step, seq, ended, message_count, log_bytes,
  known_start, history_bytes = unpack(
  redis.call('HMGET', keys.state, 'version', 'fence', 'running', 'epoch', 'step', 'seq', 'ended',
    'message_count', 'log_bytes', 'history_start', 'history_bytes'))
local this_commit = fence .. '|' .. step
if ended == this_commit then return has_queue() and 1 or 0 end
if known_fence ~= fence or running ~= '1' then return false end
if tonumber(step) <= tonumber(known_step) then return 0 end  -- a repeat
if not follows_log(seq, first, last) then return false end
check_parts(tonumber(message_count))
local new_start = tonumber(state ~= '' and history_start or known_start or 0)
local adds_only = new_start == tonumber(known_start or 0)
history_bytes = count_history_bytes(
  adds_only and history_bytes, new_start, tonumber(message_count), FIRST_MESSAGE, #ARGV)
-- nothing above this line writes

for i = FIRST_MESSAGE, #ARGV do redis.call('RPUSH', keys.messages, ARGV[i]) end
if record ~= '' and tonumber(last) > tonumber(seq) then
  local id = epoch .. '-' .. last
  log_bytes = add_entry(keys.log, id, record, tonumber(log_bytes), tonumber(max_log_bytes))
  seq = last
end
redis.call('HSET', keys.state, 'version', digits(version + 1), 'step', step, 'owed', owed,
  'lease_expires', digits(now + lease),
  'message_count', digits(message_count + #ARGV - FIRST_MESSAGE + 1), 'seq', seq,
  'committed', epoch .. '-' .. (committed ~= '' and committed or seq), 'open_turns', open_turns,
  'log_bytes', digits(log_bytes), 'history_bytes', digits(history_bytes))
if state ~= '' then
  redis.call('HSET', keys.state, 'state', state, 'history_start', history_start)
end
if ends == '1' then
  redis.call('HSET', keys.state,
    'running', '0', 'ended', this_commit, 'stopped_early', stopped_early)
end
local waits = ends == '1' and has_queue()
if ends == '1' then
  -- the worker that ends a run goes on with the queue; others look when that takes a lease's time
  local due_in = waits and tonumber(lease) or nil
  if answer_within ~= '' then
    redis.call('HSET', keys.state, 'answer_by', digits(now + answer_within))
    due_in = math.min(due_in or math.huge, tonumber(answer_within))
  end
  set_due(member, due_in)
end
set_ttl((ends ~= '1' or waits) and running_ttl or idle_ttl)
set_log_ttl(run_id, log_ttl)
redis.call('PUBLISH', channel, '')
return waits and 1 or 0
