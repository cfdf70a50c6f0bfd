-- +goose Up

-- How a tenant's tools are run: one setup of each kind. The columns are what
-- queries need; doc is all of it.
create table tool_setups (
    id         text    not null primary key,
    tenant     text    not null,
    kind       text    not null,
    created_ns integer not null,
    doc        text    not null check (json_valid(doc)),
    data       blob    not null,
    unique (tenant, kind)
) strict;

-- What all tools of a setup get. Values are sealed, in data.
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
