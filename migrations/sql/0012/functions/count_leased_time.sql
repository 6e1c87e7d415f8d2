-- A lease ends: its time goes to the turn that runs under it. A claim over a lease that has run out gives the row a new
-- fence, which is the end of one lease and the beginning of another. Without its last renewals a worker may have worked
-- until the lease ran out, so that moment ends it. A trigger, so that it holds for workers of the version before too.
CREATE FUNCTION count_leased_time() RETURNS trigger
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
