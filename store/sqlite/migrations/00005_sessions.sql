-- +goose Up

-- A session's columns are what queries need; doc is all of it but its hash and
-- when it was last used, as JSON. key is that of the key that it stands for,
-- empty for a person.
create table sessions (
    hash       blob    not null primary key,
    id         text    not null unique,
    tenant     text    not null,
    key        text    not null,
    created_ns integer not null,
    used_ns    integer not null,
    expires_ns integer not null,
    doc        text    not null check (json_valid(doc))
) strict;

create index sessions_by_tenant on sessions (tenant, created_ns, id);
create index sessions_by_key on sessions (key);
