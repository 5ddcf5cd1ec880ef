-- Stands in front of every script. Time is the server's, in milliseconds; values are opaque
-- strings, never parsed here.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function digits(number)
  return string.format('%.0f', number)
end

-- A time `after` milliseconds from now, to the microsecond: no two scripts give the same one.
local function time_in(after)
  return string.format('%.3f', time[1] * 1000 + time[2] / 1000 + after)
end

-- Return the time in microseconds, in digits.
local function microseconds()
  return digits(time[1] * 1000000 + time[2])
end
