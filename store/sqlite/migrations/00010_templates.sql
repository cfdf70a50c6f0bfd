-- +goose Up

-- The templates that tenants build. The columns are those that queries need; doc is
-- the complete template.
create table templates (
    tenant     text    not null,
    id         text    not null,
    name       text    not null,
    created_ns integer not null,
    rev        integer not null,
    doc        text    not null check (json_valid(doc)),
    data       blob    not null,
    primary key (tenant, id),
    unique (tenant, name)
) strict;

-- The builds of templates. doc is the build without its log. The log is the last
-- column, because SQLite reads the columns of a large row in order, and lists of
-- builds do not read the log.
create table template_builds (
    tenant     text    not null,
    template   text    not null,
    id         text    not null,
    status     text    not null,
    created_ns integer not null,
    rev        integer not null,
    doc        text    not null check (json_valid(doc)),
    data       blob    not null,
    log        text    not null check (json_valid(log)),
    primary key (tenant, template, id),
    foreign key (tenant, template) references templates (tenant, id) on delete cascade
) strict;

create index template_builds_newest on template_builds (tenant, template, created_ns desc, id desc);
create index template_builds_unfinished on template_builds (created_ns desc, id desc)
    where status in ('waiting', 'building');
