-- Adds the time of a lease that ends to the turn that runs under it. A claim that replaces an expired lease gives the
-- row a new fence, which ends one lease and begins another. A worker that could not renew may have worked until the
-- lease expired, so that moment ends it.
CREATE OR REPLACE FUNCTION count_leased_time() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    UPDATE turn t
       SET leased_s = t.leased_s
           + GREATEST(0, EXTRACT(epoch FROM LEAST(OLD.expires_at, clock_timestamp()) - OLD.claimed_at))
     WHERE t.conversation_id = OLD.conversation_id AND t.status = 'running';
    IF TG_OP = 'DELETE' THEN
        RETURN OLD;
    END IF;
    NEW.claimed_at := clock_timestamp();
    RETURN NEW;
END
$$;

REVOKE ALL ON FUNCTION count_leased_time FROM PUBLIC;
