-- +goose Up
alter table usage add column cost real not null default 0;
