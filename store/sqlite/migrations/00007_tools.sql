-- +goose Up

-- The setups of a tenant's tools, one of each kind. The columns are those that
-- queries need; doc is the complete setup.
create table tool_setups (
    id         text    not null primary key,
    tenant     text    not null,
    kind       text    not null,
    created_ns integer not null,
    doc        text    not null check (json_valid(doc)),
    data       blob    not null,
    unique (tenant, kind)
) strict;

-- The variables of all tools of a setup. data has the encrypted values.
create table tool_variables (
    id         text    not null primary key,
    setup      text    not null references tool_setups (id) on delete cascade,
    tenant     text    not null,
    key        text    not null,
    created_ns integer not null,
    doc        text    not null check (json_valid(doc)),
    data       blob    not null,
    unique (setup, key)
) strict;
