-- +goose Up

-- The volumes of tenants. The columns are those that queries need; doc is the complete
-- volume. removed_ns is 0 while the volume exists for its tenant.
create table volumes (
    tenant     text    not null,
    id         text    not null,
    name       text    not null,
    created_ns integer not null,
    removed_ns integer not null,
    doc        text    not null check (json_valid(doc)),
    data       blob    not null,
    primary key (tenant, id)
) strict;

create unique index volumes_name on volumes (tenant, name) where removed_ns = 0;
