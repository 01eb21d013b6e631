-- The journal as a fresh database has it. migrations/ must end with exactly this (a test compares them).

create table meta (
    key         text    primary key,
    value       text    not null
) strict, without rowid;

create table session (
    id          integer primary key,
    key         text    not null unique,           -- the id that agents use
    status      text    not null default 'RUNNING',
    head        integer not null default 0,        -- the branch that new requests see
    clock       integer not null default 0,        -- ticks at every begin and end of a step: order without wall time
    steps       integer not null default 0,        -- the next step's number
    note        text    not null default '',       -- why it is paused or failed, as JSON
    created_at  real    not null,
    updated_at  real    not null
) strict;
create index session_updated on session (updated_at);

create table branch (
    id          integer primary key,
    session     integer not null references session (id),
    parent      integer,
    upto        integer not null,                  -- steps of the parent below this number are shared
    reason      text    not null,                  -- first, generation, rollback
    opening     blob,                              -- fingerprint of its first step
    created_at  real    not null
, made_by text not null default '') strict;
create index branch_session on branch (session);
create index branch_parent on branch (parent) where parent is not null;

create table run (
    id          integer primary key,
    session     integer not null references session (id),
    name        text    not null,
    named       integer not null,                  -- came with a run id
    evidence    text    not null,
    owner       text    not null default '',       -- pid:start of the process that owns its sockets
    supervisor  integer,                           -- pid of the `agentstate run` that watches it
    state       text    not null default 'open',
    siblings    text    not null default '[]',     -- runs alive when it began, as JSON
    base        integer not null,                  -- steps below this number existed when it began
    hint_min    integer,
    hint_max    integer,
    divergence  text,                              -- the report of its first divergence, as JSON
    exit_code   integer,
    started_at  real    not null,
    ended_at    real,
    unique (session, name)
) strict;

create table blob (
    id          integer primary key,
    hash        blob    not null unique,           -- sha256 of the content
    codec       integer not null,                  -- 0 plain, 1 zstd
    size        integer not null,
    data        blob    not null
) strict;

create table node (                                -- a transcript: its last message and the node before it
    id          integer primary key,
    hash        blob    not null unique,           -- sha256 of the parent's hash and the message's
    parent      integer,
    blob        integer not null
) strict;

create table step (
    id          integer primary key,
    session     integer not null references session (id),
    number      integer not null,
    branch      integer not null,
    run         integer not null,                  -- that first asked
    kind        text    not null,
    state       text    not null,
    dialect     text    not null,
    method      text    not null,
    path        text    not null,
    model       text    not null,
    stream      integer not null,                  -- recorded shape: 1 stream, 2 with usage chunk, 3 array
    fingerprint blob    not null,
    tip         blob    not null,
    frame       integer not null,                  -- blob: the body around the messages
    node        integer,                           -- the messages
    attempts    integer not null default 1,
    started     integer not null,                  -- ticks
    finished    integer not null default 0,
    hint        integer,
    retry_key   blob    not null default x'',      -- sha256 of its idempotency key
    created_at  real    not null,
    unique (session, number)
) strict;
create index step_fingerprint on step (branch, fingerprint);

-- prices: whose prices its cost was computed with, with the version of their table; empty where the cost is unknown.
create table attempt (
    step        integer not null,
    n           integer not null,                  -- from 1
    run         integer not null,                  -- that caused it
    provider    text    not null,
    status      integer not null default 0,        -- HTTP status, 0: none came
    head        blob,                              -- response headers, packed JSON
    body        integer,                           -- blob: the bytes that were received
    released    integer not null default 0,        -- 1: they were given to an agent as the answer
    model       text    not null default '',       -- who really answered
    usage       text    not null default '',
    cost        real,                              -- USD; null: unknown
    error       text    not null default '',
    broken      integer not null default 0,
    started_at  real    not null,
    finished_at real, prices text not null default '',
    primary key (step, n)
) strict, without rowid;

create index attempt_again on attempt (started_at) where n > 1;

create table served (
    run         integer not null,
    step        integer not null,
    outcome     text    not null,
    match       text    not null default 'strict',
    hint        integer,
    cut_at      real    not null default 0,        -- when its reader left before the last byte; 0: it did not
    delivered   integer not null default 0,        -- its last byte was handed to an open socket
    joins       integer not null default 0,        -- how often it was handed to the run once more
    at          real    not null,
    primary key (run, step)
) strict, without rowid;
create index served_step on served (step);

create table call (                                -- tool calls that answers propose
    step        integer not null,
    choice      integer not null,
    place       integer not null,
    call_id     text    not null,
    name        text    not null,
    primary key (step, choice, place)
) strict, without rowid;
create index call_id on call (call_id);

create table held (                                -- answers that their provider holds for later requests to name
    session     integer not null,
    id          text    not null,                  -- the provider's name for it
    step        integer not null,
    job         integer not null default 0,        -- 1: the answer of the step is a job under way
    status      integer not null default 0,        -- HTTP status of the finished job's answer
    head        blob,                              -- its headers, packed JSON
    body        integer,                           -- blob: the finished job's answer
    finished_at real,
    primary key (session, id)
) strict, without rowid;
create index held_step on held (step);
create index held_job on held (id) where job = 1;

create table deleted (                             -- jobs that were deleted at their provider, by which run
    session     integer not null,
    id          text    not null,                  -- the provider's name for it
    run         text    not null,                  -- the run's name; empty: of no run
    upto        integer not null,                  -- the last run of the session that had begun by then
    status      integer not null,                  -- what the provider said: done, or 404 and 410: gone already
    at          real    not null,
    primary key (session, id, run)
) strict, without rowid;

create table revision (                            -- answers that a person edited; of a branch, for all that show it
    branch      integer not null,
    step        integer not null,
    body        integer not null,                  -- blob: the answer as it is given, plain
    changed     text    not null,                  -- what of it was edited, as JSON
    made_by     text    not null,
    reason      text    not null default '',
    made_at     real    not null,
    primary key (branch, step)
) strict, without rowid;
create index revision_step on revision (step);

create table left_behind (                         -- recorded steps that go on from what an edit replaced
    branch      integer not null,                  -- of the revision
    revised     integer not null,                  -- the step that was edited
    step        integer not null,                  -- the one that went on from it
    held        integer not null,                  -- 1: from what its provider holds, which its request only names
    primary key (branch, revised, step)
) strict, without rowid;

create table revised_call (                        -- calls of an edited answer that were edited, and what became of them
    branch      integer not null,
    step        integer not null,
    choice      integer not null,
    place       integer not null,
    call_id     text    not null,
    name        text    not null,
    arguments   integer not null,                  -- blob
    digest      blob    not null,                  -- as in invocation
    result      integer,                           -- blob: what came back
    failed      integer not null default 0,
    seen_at     real,
    primary key (branch, step, choice, place)
) strict, without rowid;
create index revised_call_digest on revised_call (digest);

create table label (                               -- of sessions
    session     integer not null references session (id),
    name        text    not null,
    primary key (session, name)
) strict, without rowid;

create table approval (                            -- a question put to a person
    id          text    primary key,               -- random
    session     integer not null references session (id),
    step        integer not null,                  -- whose answer proposes the call, or which is to be sent
    kind        text    not null,                  -- call, request, duplicate, doubt
    choice      integer not null default 0,        -- the call's place in the answer
    place       integer not null default 0,
    call_id     text    not null default '',
    tool        text    not null default '',
    arguments   integer not null,                  -- blob: as proposed; of a request: its body
    schema      integer,                           -- blob: the schema that the request gave for them
    digest      blob    not null,                  -- sha256 of all that the decision is bound to
    rule        text    not null default '{}',     -- the policy that held it, as JSON
    on_reject   text    not null,
    quorum      integer not null default 1,
    approvers   text    not null default '[]',     -- names or roles that may decide, as JSON; empty: every approver
    state       text    not null default 'pending',
    effective   integer,                           -- blob: the arguments as decided
    decided_by  text    not null default '',
    reason      text    not null default '',
    created_at  real    not null,
    expires_at  real,
    decided_at  real
) strict;
create unique index approval_call on approval (step, kind, choice, place);
create index approval_pending on approval (created_at, id) where state = 'pending';
create index approval_session on approval (session, created_at);

create table vote (                                -- where several must agree
    approval    text    not null,
    approver    text    not null,
    action      text    not null,
    arguments   integer,                           -- blob
    reason      text    not null default '',
    at          real    not null,
    primary key (approval, approver)
) strict, without rowid;

create table release (                             -- what agents are given of a step whose answer was held
    step        integer primary key,
    mode        text    not null,                  -- held: nothing yet; answer, message, continue, error
    body        integer,                           -- blob: the answer as it is given; null: as it was received
    said        text    not null default '{}',     -- of a refusal: what the agent or the model is told, as JSON
    at          real    not null
) strict;

create table job_release (                         -- what agents are given of a job whose end was held
    step        integer primary key,
    id          text    not null,                  -- the provider's name for it
    mode        text    not null,                  -- as in release
    body        integer,                           -- blob: the answer as it is given; null: as it was received
    said        text    not null default '{}',
    at          real    not null
) strict;

create table withheld (                            -- names under which providers keep answers that were held
    name        text    not null,                  -- of the answer, or of the conversation that it is a part of
    step        integer not null,
    primary key (name, step)
) strict, without rowid;

create table approver (
    id          integer primary key,
    name        text    not null unique,
    role        text    not null,                  -- viewer, approver, admin
    token       blob    not null unique,           -- sha256 of the token
    slack       text    not null default '',       -- the user's id there
    discord     text    not null default '',
    created_at  real    not null,
    disabled_at real
) strict;

create table audit (                               -- append-only, each entry sealed with the one before
    id          integer primary key,
    at          real    not null,
    actor       text    not null,
    action      text    not null,
    subject     text    not null,
    detail      text    not null default '{}',     -- JSON
    previous    blob    not null,
    hash        blob    not null
) strict;
create trigger audit_stays before update on audit begin
    select raise(abort, 'the audit log is append-only');
end;
create trigger audit_keeps before delete on audit begin
    select raise(abort, 'the audit log is append-only');
end;

create table outbox (                              -- one message to one target
    id          integer primary key,
    alert       text    not null,                  -- the message's id, the same for each target
    target      text    not null,                  -- the alert setting that it is for
    event       text    not null,                  -- approval.required, session.failed, ...
    session     text    not null default '',
    subject     text    not null default '',       -- an approval's id, a run's name, ...
    payload     text    not null,                  -- JSON
    attempts    integer not null default 0,
    created_at  real    not null,
    next_at     real    not null,
    delivered_at real,
    dead_at     real,
    error       text    not null default ''
) strict;
create index outbox_due on outbox (target, id) where delivered_at is null and dead_at is null;

create table invocation (                          -- what became of a proposed call
    step        integer not null,
    choice      integer not null,
    place       integer not null,
    arguments   integer not null,                  -- blob: as released
    digest      blob    not null,                  -- sha256 of tool and canonical arguments
    result      integer,                           -- blob: what came back
    failed      integer not null default 0,
    seen_at     real,                              -- when the result came back
    primary key (step, choice, place)
) strict, without rowid;
create index invocation_digest on invocation (digest);

create table detour (                              -- attempts that were no first ones, or went elsewhere than asked
    step        integer not null,
    n           integer not null,
    why         text    not null,                  -- what made it necessary
    candidate   text    not null default '',       -- provider/model that was asked, where it was not the agent's own
    lost        text    not null default '[]',     -- what of request or answer was lost in translation, as JSON
    primary key (step, n)
) strict, without rowid;

create table breaker (                             -- of a provider's model that is left alone, or was
    provider    text    not null,
    model       text    not null,
    state       text    not null,                  -- closed, open
    opened      integer not null,                  -- how often in a row it opened
    until       real    not null,                  -- when it is tried again
    since       real    not null,
    why         text    not null default '',
    primary key (provider, model)
) strict, without rowid;

create table reservation (                         -- what calls in flight may cost at most, until they have ended
    step        integer not null,
    n           integer not null,                  -- the attempt
    session     integer not null,
    day         integer not null,                  -- days (UTC) since the epoch
    usd         real    not null,
    tokens      integer not null,
    primary key (step, n)
) strict, without rowid;

create table reached (                             -- limits that people were told of
    name        text    not null,                  -- session_usd, day_steps, ...
    which       integer not null,                  -- the session, or the day
    most        real    not null,                  -- the limit as it was then
    at          real    not null,
    primary key (name, which, most)
) strict, without rowid;

create table rating (                              -- what a person thinks of a session or a step
    session     integer not null references session (id),
    step        integer not null default 0,        -- 0: of the session as a whole
    verdict     text    not null,                  -- good, bad
    note        text    not null default '',
    rated_by    text    not null,
    at          real    not null,
    primary key (session, step)
) strict, without rowid;

create table step_label (
    step        integer not null,
    name        text    not null,
    labelled_by text    not null,
    at          real    not null,
    primary key (step, name)
) strict, without rowid;

-- Facts that concern several tables are written as one row of a view, so that each is one call into SQLite: the writer
-- shares the interpreter with the event loop, and every call is a chance to wait for it.

create view put_message as
select 0 as node, x'' as hash, null as parent, x'' as blob_hash, 0 as codec, 0 as size, x'' as data;

create trigger put_message_insert instead of insert on put_message begin
    insert into blob (hash, codec, size, data) values (new.blob_hash, new.codec, new.size, new.data)
        on conflict (hash) do nothing;
    insert into node (id, hash, parent, blob)
        values (new.node, new.hash, new.parent, (select id from blob where hash = new.blob_hash));
end;

create view begin_step as
select s.*, a.provider, v.outcome from step s, attempt a, served v where 0;

create trigger begin_step_insert instead of insert on begin_step begin
    update session set clock = new.started, steps = new.number + 1 where id = new.session;
    insert into step (id, session, number, branch, run, kind, state, dialect, method, path, model, stream, fingerprint,
                      tip, frame, node, started, hint, retry_key, created_at)
        values (new.id, new.session, new.number, new.branch, new.run, new.kind, 'in_flight', new.dialect, new.method,
                new.path, new.model, new.stream, new.fingerprint, new.tip, new.frame, new.node, new.started, new.hint,
                new.retry_key, new.created_at);
    insert into attempt (step, n, run, provider, started_at) values (new.id, 1, new.run, new.provider, new.created_at);
    insert into served (run, step, outcome, hint, at) values (new.run, new.id, new.outcome, new.hint, new.created_at);
end;

create view end_step as
select a.*, s.session, s.state, s.stream, s.finished, b.hash, b.codec, b.size, b.data
from step s, attempt a, blob b where 0;

create trigger end_step_insert instead of insert on end_step begin
    select raise(abort, 'the step is not in flight any more')
        where not exists (select 1 from step s join attempt a on a.step = s.id and a.n = new.n
                          where s.id = new.step and s.state = 'in_flight' and a.finished_at is null);
    insert into blob (hash, codec, size, data) select new.hash, new.codec, new.size, new.data where new.hash is not null
        on conflict (hash) do nothing;
    update session set clock = new.finished, updated_at = new.finished_at where id = new.session;
    update attempt set status = new.status, head = new.head, body = (select id from blob where hash = new.hash),
                       released = new.released, model = new.model, usage = new.usage, cost = new.cost,
                       prices = new.prices, error = new.error, broken = new.broken, finished_at = new.finished_at
        where step = new.step and n = new.n;
    update step set state = new.state, finished = new.finished, stream = new.stream where id = new.step;
end;
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

create table pin (                                 -- sessions that are kept, whatever the rules of retention say
    session     integer primary key references session (id),
    actor       text    not null,
    reason      text    not null default '',
    at          real    not null
) strict;

create table doomed (                              -- sessions that are gone for everybody, while rows of them are left
    session     integer primary key,
    key         text    not null,
    at          real    not null
) strict;

create table pruned (                              -- what steps were that are there no more, summed up
    kind        text    not null,                  -- sent: attempts; given: replays; asked: steps
    day         text    not null,                  -- UTC, as 2026-01-31
    provider    text    not null,
    model       text    not null,
    session     integer not null,                  -- while it lives; 0: it does not
    times       integer not null,
    failed      integer not null,
    tokens      text    not null,                  -- sums as JSON, in the order of core.usage.Tokens
    uncounted   integer not null,
    usd         real    not null,
    unpriced    integer not null,
    primary key (kind, day, provider, model, session)
) strict, without rowid;

create table bygone (                              -- answers of pruned steps that agents were not given as they came
    name        text    not null,                  -- under which their provider may keep them; empty: not known
    dialect     text    not null,
    primary key (name, dialect)
) strict, without rowid;
