-- Approvals, who may give them, what was released, and the messages that go out.

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
