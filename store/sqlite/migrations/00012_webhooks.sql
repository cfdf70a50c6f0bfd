-- +goose Up

-- The webhooks of tenants. doc is the complete webhook, with its encrypted secret.
create table webhooks (
    tenant     text    not null,
    id         text    not null,
    created_ns integer not null,
    rev        integer not null,
    doc        text    not null check (json_valid(doc)),
    data       blob    not null,
    primary key (tenant, id)
) strict;

-- The newest deliveries of each webhook. seq is the line of the audit log.
create table deliveries (
    tenant  text    not null,
    webhook text    not null,
    id      text    not null,
    at_ns   integer not null,
    seq     integer not null,
    doc     text    not null check (json_valid(doc)),
    data    blob    not null,
    primary key (tenant, webhook, id),
    foreign key (tenant, webhook) references webhooks (tenant, id) on delete cascade
) strict;

create index deliveries_newest on deliveries (tenant, webhook, at_ns desc, seq desc, id desc);
