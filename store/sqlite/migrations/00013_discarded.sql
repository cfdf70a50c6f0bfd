-- +goose Up

-- Few builds have sandboxes that are not removed yet, and the server looks for them again and again.
create index template_builds_discarded on template_builds (created_ns desc, id desc)
    where json_array_length(doc, '$.Discarded') > 0;
