-- +goose Up

-- Settings that administrators change while servers run. Servers notice a change of
-- updated_ns, so change it with every manual edit.
create table settings (
    name       text    not null primary key,
    source     text    not null default 'variable',
    data_type  text    not null,
    value      text    not null,
    updated_ns integer not null
) strict, without rowid;
