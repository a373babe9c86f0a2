-- Applies a clock policy to jobs as they are submitted: srun, sbatch and salloc load this file.
-- It is the same for every policy. The policy's table is dvfs_policy.lua in the same folder. A
-- fault here or there never refuses a submission: it is logged, and the job runs at the defaults.

local folder = debug.getinfo(1, "S").source:match("^@(.*/)") or "/etc/slurm/"

local function read_table()
  local path, chunk, problem = folder .. "dvfs_policy.lua", nil, nil
  if setfenv then -- Lua 5.1
    chunk, problem = loadfile(path)
    if chunk then setfenv(chunk, {}) end
  else
    chunk, problem = loadfile(path, "t", {})
  end
  if not chunk then error(problem, 0) end
  local policy = chunk()
  if type(policy) ~= "table" or policy.format ~= 1 then
    error(path .. " is not a policy table of format 1", 0)
  end
  return policy
end

local function cluster_name()
  local file = io.open(folder .. "slurm.conf")
  if not file then return nil end
  local text = "\n" .. file:read("*a")
  file:close()
  return text:match("\n[ \t]*[Cc][Ll][Uu][Ss][Tt][Ee][Rr][Nn][Aa][Mm][Ee][ \t]*=[ \t]*([^%s#]+)")
end

-- Whether a text matches a pattern: * is any text, ? one character (in UTF-8).
local function matches(text, pattern)
  local t, p, star, after = 1, 1, nil, nil
  while t <= #text do
    local c = pattern:sub(p, p)
    if c == "*" then
      star, after, p = p, t, p + 1
    elseif c == "?" then
      local _, last = text:find("^[^\128-\191][\128-\191]*", t)
      t, p = (last or t) + 1, p + 1
    elseif c ~= "" and c == text:sub(t, t) then
      t, p = t + 1, p + 1
    elseif star then
      after = after + 1
      t, p = after, star + 1
    else
      return false
    end
  end
  while pattern:sub(p, p) == "*" do p = p + 1 end
  return p > #pattern
end

-- An option's value; nil where it was not given or this command does not have it.
local function option(options, name)
  local value = options[name]
  if value ~= "invalid-context" then return value end
end

-- A job as it is submitted, by the keys of a match. What is not known has no key.
local function described(options)
  local argv = options["argv"] or {}
  local words, program = {}, nil
  for i = 0, #argv do -- the first index differs between versions
    if argv[i] ~= nil then
      if program == nil then program = argv[i] else words[#words + 1] = argv[i] end
    end
  end
  local wrapped = option(options, "wrap")
  if wrapped then
    program = wrapped:match("^%s*(%S+)")
    words = { wrapped:match("^%s*%S+%s+(.-)%s*$") }
  end
  local executable = program and program:match("([^/]*)$")
  return {
    job_name = option(options, "job-name") or (wrapped and "wrap") or executable,
    executable = executable,
    account = option(options, "account"),
    partition = option(options, "partition"),
    comment = option(options, "comment"),
    arguments = table.concat(words, " "),
  }
end

local function entry_for(policy, job)
  for _, entry in ipairs(policy.entries) do
    local fits = os.time() <= entry["until"]
    for key, pattern in pairs(entry.match) do
      fits = fits and type(job[key]) == "string" and matches(job[key], pattern)
    end
    if fits then return entry end
  end
end

-- A number from 0 to below 1 by all that is known of this submission. Neither the job's id nor the
-- user's is known, so the command's process and the time take their place.
local function draw(policy, job)
  local file = io.open("/proc/self/stat")
  local process = file and file:read("*l") or ""
  if file then file:close() end
  local known = { policy.seed, job.job_name or "", job.executable or "", job.arguments,
    os.getenv("USER") or "", os.time(), process }
  local h = 1
  for byte in table.concat(known, "\n"):gmatch(".") do
    h = (h * 16807 + byte:byte()) % 2147483647
  end
  -- Submissions that follow each other differ little: a product with a part of itself mixes them.
  for _ = 1, 4 do h = (h * (h % 65521 + 17) + 11) % 2147483647 end
  return h / 2147483647
end

local function has_word(text, word)
  return (" " .. (text or "") .. " "):find("%s" .. word:gsub("%p", "%%%0") .. "%s") ~= nil
end

local function apply(options)
  -- A step of a job has the job's clock; its environment says which.
  if options["type"] == "srun" and os.getenv("SLURM_JOB_ID") then return end
  local policy = read_table()
  local here = policy.cluster and cluster_name()
  if here and here:lower() ~= policy.cluster:lower() then
    error("the policy is for cluster " .. policy.cluster .. ", this is " .. here, 0)
  end
  if os.time() > policy["until"] then error("the policy has expired", 0) end
  if has_word(option(options, "comment"), policy.opt_out_comment)
    or os.getenv(policy.opt_out_variable) then return end
  -- Who asks for a clock gets that clock.
  if option(options, "cpu-freq") or option(options, "gpu-freq") or os.getenv("SLURM_CPU_FREQ_REQ")
    or os.getenv("SLURM_GPU_FREQ") then return end
  local job = described(options)
  local entry = entry_for(policy, job)
  if not entry then return end
  if not (entry.words:match("^%d+$") or entry.words:match("^%w+,memory=%w+$"))
    or not entry.mark:match("^[%w_.=+-]+:[%d./-]+$") then
    error("entry " .. entry.mark .. " has words that Slurm would refuse", 0)
  end
  local arm = "control"
  if draw(policy, job) >= policy.control then
    arm = "policy"
    options[entry.option] = entry.words
    if option(options, entry.option) == nil then
      error("Slurm does not take --" .. entry.option .. "=" .. entry.words, 0)
    end
  end
  local comment = option(options, "comment")
  options["comment"] = (comment and comment .. " " or "") .. "dvfs=" .. entry.mark .. ":" .. arm
end

function slurm_cli_setup_defaults(options, early)
  return slurm.SUCCESS
end

function slurm_cli_pre_submit(options, pack_offset)
  local done, problem = pcall(apply, options)
  if not done then
    pcall(slurm.log_info, "clock policy not applied: %s", tostring(problem))
  end
  return slurm.SUCCESS
end

function slurm_cli_post_submit(offset, job_id, step_id)
  return slurm.SUCCESS
end

return slurm.SUCCESS
