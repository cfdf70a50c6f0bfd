-- +goose Up

-- What administrators change while servers run. Who writes here by hand sets
-- updated_ns to something else, which is how servers see it.
create table settings (
    name       text    not null primary key,
    source     text    not null default 'variable',
    data_type  text    not null,
    value      text    not null,
    updated_ns integer not null
) strict, without rowid;
