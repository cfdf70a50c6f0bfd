import { Button, Text } from "@mantine/core";
import { useState } from "react";
import { type Operation, useLog } from "../../log";
import type { Sandbox } from "../../nouns";
import { Empty, Fetched, Go } from "../../parts";
import { List } from "../../table";
import { columns, Entry, filters, textOf } from "../Audit";

const shown = columns.filter((c) => c.title !== "About");

/** Trail shows the audit log of a sandbox. */
export function Trail({ sandbox }: { sandbox: Sandbox }) {
  const { log, rows, more, busy, whole } = useLog({ sandbox: sandbox.id });
  const [open, setOpen] = useState<Operation>();
  return (
    <Fetched query={log}>
      {() => (
        <>
          <List
            name="entries"
            rows={rows}
            id={(o) => String(o.lines[0]!.seq)}
            columns={shown}
            text={textOf}
            filters={filters.filter((f) => f.name !== "Label")}
            onOpen={setOpen}
            empty={<Empty>{whole ? "Nothing is on record for this sandbox." : "Nothing about this sandbox is among the newest entries of the log."}</Empty>}
            below={
              !whole && (
                <Button size="compact-sm" variant="default" onClick={more} loading={busy}>
                  Load older
                </Button>
              )
            }
          />
          <Text size="sm" mt="sm">
            <Go to="/audit">The whole log</Go>
          </Text>
          <Entry of={open} onClose={() => setOpen(undefined)} />
        </>
      )}
    </Fetched>
  );
}
