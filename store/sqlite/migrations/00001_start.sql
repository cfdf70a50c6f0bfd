-- +goose Up

-- The columns of a record are those that queries need. doc is the complete record
-- as JSON, and data has the bytes that doc refers to (see codec.go). Times are
-- nanoseconds since 1970, for order and comparison only; doc has the exact ones.
create table sandboxes (
    id         text    not null primary key,
    tenant     text    not null,
    name       text    not null,
    state      text    not null,
    digest     text    not null,
    created_ns integer not null,
    expires_ns integer not null,
    rev        integer not null,
    doc        text    not null check (json_valid(doc)),
    data       blob    not null,
    unique (tenant, name)
) strict;

create index sandboxes_newest on sandboxes (tenant, created_ns desc, id desc);

create table labels (
    sandbox text not null references sandboxes (id) on delete cascade,
    key     text not null,
    value   text not null,
    primary key (sandbox, key)
) strict, without rowid;

create index labels_by_value on labels (key, value);

create table executions (
    sandbox    text    not null references sandboxes (id) on delete cascade,
    id         text    not null,
    started_ns integer not null,
    doc        text    not null check (json_valid(doc)),
    data       blob    not null,
    primary key (sandbox, id)
) strict;

create index executions_newest on executions (sandbox, started_ns desc, id desc);

create table runs (
    tenant text    not null,
    name   text    not null,
    put_ns integer not null,
    doc    text    not null check (json_valid(doc)),
    data   blob    not null,
    primary key (tenant, name)
) strict;

create index runs_by_age on runs (put_ns);

create table keys (
    hash   blob    not null primary key,
    actor  text    not null,
    tenant text    not null,
    role   integer not null
) strict;

-- The audit log. seq only grows, also when old lines are removed.
create table events (
    seq     integer primary key autoincrement,
    at      text not null, -- RFC 3339, UTC, nanoseconds
    op      text not null,
    actor   text not null,
    tenant  text not null,
    sandbox text not null,
    phase   text not null,
    kind    text not null
) strict;
