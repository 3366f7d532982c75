"""The rules of the edge layer: what goes to which edge cluster, in which form, and what a syncer does about it.

Here belongs what controllers, views and syncers decide: pure functions of objects, clocks and uids, without I/O; the
only files are `schemas/edge`, which ship with the product. Not here: reading, writing, watching and retrying.

- Where: `where` (`WhereIndex`, `location_of`, `sync_target_of`) over `label_index`, with its result in `slices`
  (`plan_slices`, `destinations_of`), over the values of `placements` (`placement_of`).
- What: `what` (`selection`, `definers`), by the table of `categories` (`goes_to_edge`, `comes_up`, `returns_status`,
  `is_in_edge_view`) and by `system_objects`.
- Customizing: `customization` (`customized`, `customizer_of`, `parameters_of`), over paths of `json_paths`.
- Several sources: `versions` (`agree`), then `merging` (`merge`), with the conflicts between them.
- Copies: `projection` (`render`, `bare_namespace`, `is_projected`), without what `allocated` finds;
  `applied` (`is_in_force`, `record_of`) tells a write that would change nothing.
- Lists: `syncerconfigs` (`specs_of`, `plan_parts`) and `list_edits` (`edited`) for the translator, `syncset`
  (`sync_set`) for syncers.
- Views: `denaturing` (`stored_type`, `served_type`) has the types under which they store denatured kinds.
- Syncers: `plan` (`plan`, `acknowledged`, `adopting`) goes down, after `conversions` (`renamed`), with what failed in
  `failures` (`next_failure`, `error_rows`); `returns` (`status_return`) and `upsync` (`plan_upsync`) come up.
  `returns.singleton_configurations` is what a workspace sees of one copy.
"""
