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
