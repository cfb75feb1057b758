-- A script for wrk: POST /predict with the lines of a file in turn, and the result as a line of JSON.
local bodies, at = {}, 0

function init(args)
  for line in io.lines(args[1]) do
    bodies[#bodies + 1] = wrk.format("POST", "/predict", { ["Content-Type"] = "application/json" }, line)
  end
end

function request()
  at = at % #bodies + 1
  return bodies[at]
end

function done(summary, latency)
  local e = summary.errors
  io.write(string.format('{"requests": %d, "seconds": %.3f, "p50": %.2f, "p99": %.2f, "errors": %d}\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
    e.connect + e.read + e.write + e.status + e.timeout))
end
