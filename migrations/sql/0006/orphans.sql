-- Workers delete stored objects that no row names; before, an operator's command of the ingress alone did.
SET LOCAL ROLE everturn_dispatch;
GRANT EXECUTE ON FUNCTION find_orphan_objects TO everturn_worker;
RESET ROLE;
