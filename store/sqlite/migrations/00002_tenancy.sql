-- +goose Up

-- The columns of a key are those that queries need. doc is the key as JSON, without
-- its hash. used_ns is the time of the last use, outside doc because only it changes.
create table keys_new (
    hash       blob    not null primary key,
    id         text    not null unique,
    tenant     text    not null,
    created_ns integer not null,
    used_ns    integer not null default 0,
    doc        text    not null check (json_valid(doc))
) strict;

insert into keys_new (hash, id, tenant, created_ns, doc)
select hash, 'k' || lower(hex(substr(hash, 1, 10))), tenant, 0,
    json_object('ID', 'k' || lower(hex(substr(hash, 1, 10))), 'Actor', json_object(
        'Name', actor, 'Tenant', tenant, 'Role', role, 'Key', 'k' || lower(hex(substr(hash, 1, 10)))))
from keys;

drop table keys;
alter table keys_new rename to keys;

create index keys_by_tenant on keys (tenant, created_ns, id);

create table tenants (
    name text not null primary key,
    doc  text not null check (json_valid(doc))
) strict, without rowid;

-- Create the tenants that own existing records.
insert into tenants (name, doc)
select tenant, json_object('Name', tenant, 'Created', strftime('%Y-%m-%dT%H:%M:%SZ', 'now'))
from (select tenant from keys union select tenant from sandboxes union select tenant from runs);

-- The usage of a tenant on a day: the total if label is empty, and the usage of
-- sandboxes with each label.
create table usage (
    tenant       text    not null,
    day          text    not null,
    label        text    not null,
    value        text    not null,
    executions   integer not null,
    execution_ns integer not null,
    cpu_ns       integer not null,
    gib_seconds  real    not null,
    egress       integer not null,
    primary key (tenant, day, label, value)
) strict, without rowid;

create index usage_by_day on usage (day);
