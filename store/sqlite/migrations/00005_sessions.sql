-- +goose Up

-- The columns of a session are those that queries need. doc is the session as JSON,
-- without its hash and the time of its last use. key is the key that it represents,
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
