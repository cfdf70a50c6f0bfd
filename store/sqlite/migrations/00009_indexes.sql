-- +goose Up

-- Every run writes each index of runs and sandboxes, so there are only indexes that the
-- other statements need. deleteRuns reads runs_oldest for each tenant, and only ended
-- sandboxes, which runs do not become, are searched by their state.
drop index runs_by_age;
drop index sandboxes_by_state;
create index sandboxes_ended on sandboxes (tenant, created_ns desc, id desc) where state = 'stopped';
