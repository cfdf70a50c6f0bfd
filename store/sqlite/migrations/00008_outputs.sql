-- +goose Up

-- Outputs of executions and outcomes can be large. An output above a small size is in
-- a separate file: file has its name, and data is empty. size is the size of the row
-- with its file. lost is set if the bytes are lost, but the document is not.
alter table executions add column tenant text not null default '';
alter table executions add column done integer not null default 0;
alter table executions add column size integer not null default 0;
alter table executions add column file text not null default '';
alter table executions add column lost integer not null default 0;
alter table runs add column size integer not null default 0;
alter table runs add column file text not null default '';
alter table runs add column lost integer not null default 0;

update executions set
    tenant = (select tenant from sandboxes where sandboxes.id = executions.sandbox),
    done = coalesce(json_extract(doc, '$.Done'), 0),
    size = length(doc) + length(data);
update runs set size = length(doc) + length(data);

create index executions_oldest on executions (tenant, started_ns, id);
create index executions_files on executions (sandbox, started_ns desc, id desc) where file <> '';
create index runs_oldest on runs (tenant, put_ns, name);
create index sandboxes_by_state on sandboxes (tenant, state, created_ns);

-- The total size of each tenant's rows.
create table kept_bytes (
    tenant text    not null primary key,
    bytes  integer not null
) strict, without rowid;

insert into kept_bytes (tenant, bytes)
select tenant, sum(size) from (
    select tenant, size from executions union all select tenant, size from runs
) group by tenant;

-- Files without a row, until they are removed.
create table unnamed (
    file text not null primary key
) strict, without rowid;

-- +goose StatementBegin
create trigger executions_in after insert on executions begin
    insert into kept_bytes (tenant, bytes) values (new.tenant, new.size)
    on conflict (tenant) do update set bytes = bytes + excluded.bytes;
end;
-- +goose StatementEnd

-- +goose StatementBegin
create trigger executions_change after update on executions begin
    update kept_bytes set bytes = bytes + new.size - old.size where tenant = new.tenant;
    insert or ignore into unnamed (file) select old.file where old.file <> '' and old.file <> new.file;
end;
-- +goose StatementEnd

-- +goose StatementBegin
create trigger executions_out after delete on executions begin
    update kept_bytes set bytes = bytes - old.size where tenant = old.tenant;
    insert or ignore into unnamed (file) select old.file where old.file <> '';
end;
-- +goose StatementEnd

-- +goose StatementBegin
create trigger runs_in after insert on runs begin
    insert into kept_bytes (tenant, bytes) values (new.tenant, new.size)
    on conflict (tenant) do update set bytes = bytes + excluded.bytes;
end;
-- +goose StatementEnd

-- +goose StatementBegin
create trigger runs_change after update on runs begin
    update kept_bytes set bytes = bytes + new.size - old.size where tenant = new.tenant;
    insert or ignore into unnamed (file) select old.file where old.file <> '' and old.file <> new.file;
end;
-- +goose StatementEnd

-- +goose StatementBegin
create trigger runs_out after delete on runs begin
    update kept_bytes set bytes = bytes - old.size where tenant = old.tenant;
    insert or ignore into unnamed (file) select old.file where old.file <> '';
end;
-- +goose StatementEnd
