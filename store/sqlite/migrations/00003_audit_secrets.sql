-- +goose Up

-- The lines of each tenant are a chain: n counts them, and hash covers the line and
-- prev. Lines that are older than the chain have n = 0.
alter table events add column n integer not null default 0;
alter table events add column at_ns integer not null default 0;
alter table events add column detail text not null default '{}';
alter table events add column prev blob not null default x'';
alter table events add column hash blob not null default x'';

create unique index events_chain on events (tenant, n) where n > 0;

-- The state of each chain: its last line, and the last line that was pruned.
create table chains (
    tenant text    not null primary key,
    n      integer not null,
    at     text    not null,
    hash   blob    not null,
    pruned integer not null default 0
) strict, without rowid;

-- Values are encrypted. doc has the other properties of a secret as JSON.
create table secrets (
    tenant  text    not null,
    name    text    not null,
    version integer not null,
    doc     text    not null check (json_valid(doc)),
    key     text    not null,
    sealed  blob    not null,
    primary key (tenant, name)
) strict, without rowid;
