create table effect (                              -- a tool call that is made under a claim
    step        integer primary key,
    server      text    not null,                  -- of the MCP server; empty: a function of the agent
    tool        text    not null,
    class       text    not null,                  -- read, idempotent, once
    key         text    not null,                  -- passed on with the call, the same for every attempt
    occurrence  integer not null,                  -- equal calls on the branch before it
    arguments   integer not null,                  -- blob: as sent
    holder      text    not null default '',       -- the process that executes it; empty: the proxy
    owner       text    not null default '',       -- pid:start of that process, where it is known
    sending     blob    not null default x'',      -- sha256 of what names the call within that process
    leave       text,                              -- the approval of a model's call that this call used up
    settled     text    not null default '',       -- how a doubt about it ended: ran, again, aborted
    failed      integer not null default 0,        -- its result is an error
    seen_at     real                               -- when its result came
) strict;
create unique index effect_leave on effect (leave) where leave is not null;
