alter table branch add column made_by text not null default '';
create index branch_parent on branch (parent) where parent is not null;

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
