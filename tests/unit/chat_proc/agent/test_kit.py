import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from turn_harness.programs import build_parts

from chat_proc.agent.kit import BundleKit, TurnKit
from chat_proc.attachments.reader import AttachmentReader
from chat_proc.bundles.bundle import Bundle, read_folder, unpack
from chat_proc.bundles.manifest import BadBundle, BundleProps, Manifest, read_manifest
from chat_proc.bundles.repositories import BundleTable
from chat_proc.catalog.described import ToolModule, load_tools
from chat_proc.channels.actions import ActionHead, ActionJudge
from chat_proc.model_choice import choose_models, choose_models_of
from chat_proc.models.providers import BadModelSetting
from chat_proc.opening import (
    build_decision_limits,
    build_kit,
    build_texts,
    choose_profile,
    read_bundle_skills,
    without_git_tokens,
)
from chat_proc.sandbox.port import SandboxUnavailable
from chat_proc.settings import OperatorConfig, WorkerSettings
from chat_proc.tools.code.run_code import build_code_spec
from chat_proc.tools.offered import ToolPorts, offer_tools
from everturn.core.errors import Invalid
from everturn.core.identity import Principal
from everturn.execution.profiles import ExecutionProfile
from everturn.models.port import ModelTraits
from everturn.skills.model import NO_SKILLS, Skills
from everturn_testing.files.artifacts import MemoryArtifacts
from everturn_testing.files.objects import MemoryObjects
from everturn_testing.in_memory_platform import MemoryPlatform
from everturn_testing.models.scripted_model import ScriptedModel
from everturn_testing.turns.conversation_reader import MemoryConversationReader
from everturn_testing.turns.timelines import MemoryTimelines


@pytest.fixture
def settings(tmp_path: Path) -> WorkerSettings:
    return WorkerSettings(
        mode="development", database_url="postgresql://w@h/n", redis_url="redis://h/0", objects_url=tmp_path.as_uri()
    )


def build_tool_ports() -> ToolPorts:
    platform = MemoryPlatform()
    objects = MemoryObjects()
    return ToolPorts(
        objects,
        AttachmentReader(objects),
        MemoryArtifacts(platform),
        MemoryConversationReader(platform),
        MemoryTimelines(platform),
    )


def make(
    settings: WorkerSettings, config: OperatorConfig, bundle_id: str = "default", skills: Skills = NO_SKILLS
) -> TurnKit:
    tools = offer_tools(build_tool_ports(), SandboxUnavailable("none here"), build_parts())
    manifest = Manifest(id=bundle_id).override(config.bundles.get(bundle_id, BundleProps()))
    models = asyncio.run(choose_models(settings, config))
    return build_kit(
        settings,
        config,
        asyncio.run(choose_models_of(manifest, settings, config, models)),
        manifest,
        build_parts().policy,
        offered=tools,
        hotset=None,
        skills=skills,
    )


def test_a_turn_of_a_bundle_has_the_rounds_configured_for_it(settings: WorkerSettings) -> None:
    config = OperatorConfig.model_validate({"bundles": {"b": {"react": {"max_iterations": 3}}}})

    usual = settings.model_copy(update={"max_iterations": 9})

    assert make(usual, config, "b").limits.rounds == 3
    assert make(usual, config).limits.rounds == make(usual, config, "other").limits.rounds == 9


def test_a_bundle_can_shorten_the_wait_for_an_approval(settings: WorkerSettings) -> None:
    limits = {"b": {"limits": {"approval_timeout_s": 60}}, "c": {"limits": {"approval_timeout_s": 1e9}}}
    config = OperatorConfig.model_validate({"bundles": limits})

    waits = [make(settings, config, bundle_id).approval_timeout_s for bundle_id in ("b", "c", "default")]

    assert waits == [60, settings.approval_timeout_s, settings.approval_timeout_s]


def test_a_bundle_chooses_among_the_profiles_of_the_operator() -> None:
    large = ExecutionProfile(description="For large tables.", denied_tools=("web_tools.web_fetch",))
    offered = {"default": ExecutionProfile(), "large": large}

    assert choose_profile(None, offered) is offered
    assert choose_profile("large", offered) == {"large": large}
    with pytest.raises(Invalid, match=r"execution_profile: huge is not offered here. There are: default, large\."):
        choose_profile("huge", offered)
    assert choose_profile("huge", None) is None, "where programs can't run, it does not matter"
    guide = build_code_spec(profiles={"large": large}).guide
    assert "- Programs run with the profile `large`: For large tables. (1,024 MiB of memory, " in guide
    assert "profile" not in build_code_spec().guide


def test_a_bundle_offers_its_skills_in_its_prompts_and_tools(settings: WorkerSettings, tmp_path: Path) -> None:
    (tmp_path / "desk" / "skills" / "support" / "tone").mkdir(parents=True)
    (tmp_path / "desk" / "bundle.toml").write_text(
        'id = "desk"\n[[skills]]\nnamespace = "public"\n[[skills]]\npath = "skills"\n'
    )
    skill = "---\nname: tone\ndescription: How to word answers.\n---\nBe brief.\n"
    (tmp_path / "desk" / "skills" / "support" / "tone" / "SKILL.md").write_text(skill)
    bundle = read_folder(tmp_path / "desk")
    skills = read_bundle_skills(bundle, has_programs=False)

    kit = make(settings, OperatorConfig(), "desk", skills)

    assert [skill.id for skill in skills][-1] == "support.tone"
    for codec in (kit.codec, kit.native, kit.without(["react.plan"]).codec, kit.instruct("Be kind.").codec):
        assert codec is not None and "\n- sk:support.tone: How to word answers.\n" in codec.system_prompt
    assert kit.skills is skills
    assert unpack(bundle.pack()).manifest.skills == bundle.manifest.skills


def test_only_the_built_in_agent_has_the_skills_of_the_platform_unasked() -> None:
    built_in = Bundle(Manifest(id="default"))
    without = built_in.override(BundleProps(skills=()))

    assert len(read_bundle_skills(built_in, has_programs=True)) == 3
    assert not read_bundle_skills(built_in, has_programs=False)
    assert not read_bundle_skills(without, has_programs=True)
    assert not read_bundle_skills(Bundle(Manifest(id="desk")), has_programs=True)


def test_a_bundle_with_a_bad_skill_or_spec_is_refused_with_its_line() -> None:
    bad = Bundle(Manifest(id="desk"), {"skills/a/b/SKILL.md": b"---\nname: c\ndescription: x\n---\nDo it."})

    with pytest.raises(Invalid) as refused:
        read_bundle_skills(bad, has_programs=True)
    assert refused.value.detail == "skills/a/b/SKILL.md, line 2: the name 'c' must be that of its folder, 'b'."
    with pytest.raises(BadBundle, match=r"bundle.toml, line 2: skills 1: Give either a path"):
        read_manifest(b'id = "desk"\n[[skills]]\n')
    with pytest.raises(BadBundle, match=r"bundle.toml, line 3: skills 1.folder: Unknown key"):
        read_manifest(b'id = "desk"\n[[skills]]\nfolder = "skills"\n')


def test_a_bundle_can_lower_the_limits_of_its_turns_but_not_raise_them(settings: WorkerSettings) -> None:
    config = OperatorConfig.model_validate(
        {
            "bundles": {
                "low": {"limits": {"tokens": 5_000, "cost_usd": 0.5, "wall_time_s": 60, "output_tokens": 300}},
                "high": {"limits": {"tokens": 10**12, "cost_usd": 1e9, "wall_time_s": 1e9, "output_tokens": 10**9}},
            }
        }
    )

    low, high, usual = (make(settings, config, bundle_id).limits for bundle_id in ("low", "high", "default"))

    assert (low.tokens, low.cost_usd, low.wall_time_s, low.max_output_tokens) == (5_000, 0.5, 60, 300)
    assert high == usual


def test_a_bundle_names_its_own_models(settings: WorkerSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_KEY", "local-secret")
    endpoint = {"protocol": "openai", "base_url": "http://127.0.0.1:9/v1", "key_env": "LOCAL_KEY"}
    card = {"context_tokens": 32_000, "max_output_tokens": 2_000, "abilities": ["tool_call"]}
    config = OperatorConfig.model_validate(
        {
            "models": {"endpoints": {"local": endpoint}, "cards": {"mine": card}},
            "bundles": {"b": {"models": {"decision": "local:mine"}, "react": {"codec": "auto"}}},
        }
    )

    named, usual = make(settings, config, "b"), make(settings, config)

    assert named.model.traits.ledger_name != usual.model.traits.ledger_name
    assert (named.codec.name, named.limits.max_output_tokens) == ("native", 2_000)
    with pytest.raises(BadModelSetting, match="nobody"):
        make(settings, OperatorConfig.model_validate({"bundles": {"b": {"models": {"title": "nobody:x"}}}}), "b")


def test_instructions_are_in_every_prompt_of_the_turn(settings: WorkerSettings) -> None:
    config = OperatorConfig.model_validate(
        {
            "ai": {"instructions": "Everyone is polite."},
            "tenants": {"acme": {"instructions": "Acme is right.", "projects": {"web": {"instructions": "Web only."}}}},
            "bundles": {"desk": {"instructions": "You open tickets."}},
        }
    )
    kit = BundleKit(make(settings, config, "desk"), build_texts(config))
    inside, outside = (kit.for_turn(Principal(tenant, "web", "ann")) for tenant in ("acme", "other"))

    texts = "Everyone is polite.\n\nAcme is right.\n\nWeb only.\n\nYou open tickets."
    for codec in (inside.codec, inside.native):
        assert codec is not None and f"\n\n{texts}\n\n" in codec.system_prompt
    assert "\n\nEveryone is polite.\n\nYou open tickets.\n\n" in outside.codec.system_prompt
    assert kit.for_turn(Principal("acme", "web", "bob")) is inside
    assert texts in inside.without(["react.read"]).codec.system_prompt
    assert "[INSTRUCTIONS]" not in make(settings, OperatorConfig()).codec.system_prompt


def test_a_turn_knows_which_servers_were_away_when_it_began(settings: WorkerSettings) -> None:
    kit, away = BundleKit(make(settings, OperatorConfig())), ["crm"]
    kit.list_away = lambda: away
    turn = kit.for_turn(Principal("acme", "web", "ann"))
    away.clear()
    assert turn.away == ("crm",)
    assert turn.offer(()).away == ("crm",)
    later = kit.for_turn(Principal("acme", "web", "ann"))
    assert later.away == () and later.codec is turn.codec, "the prompt differs"


def test_a_bundle_can_run_plans_of_steps_with_models_for_them(
    settings: WorkerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCAL_KEY", "local-secret")
    endpoint = {"protocol": "openai", "base_url": "http://127.0.0.1:9/v1", "key_env": "LOCAL_KEY"}
    small = {"context_tokens": 32_000, "max_output_tokens": 2_000, "abilities": ["tool_call"]}
    config = OperatorConfig.model_validate(
        {
            "models": {"endpoints": {"local": endpoint}, "cards": {"small": small}, "roles": {"fast": "local:small"}},
            "bundles": {"research": {"react": {"workflow": "dag", "codec": "auto"}}},
        }
    )

    planned, usual = make(settings, config, "research"), make(settings, config)

    assert (planned.workflow, planned.limits.rounds) == ("dag", 100)
    assert (usual.workflow, usual.limits.rounds) == ("loop", 15)
    fast = planned.hinted["fast"]
    assert (list(planned.hinted), fast.codec.name, planned.codec.name) == (["fast"], "native", "json")
    assert (fast.limits.rounds, fast.limits.max_output_tokens, fast.context.max_tokens) == (100, 2_000, 30_000)
    assert usual.has_prices and not planned.has_prices


def test_a_kit_offers_no_programs_where_none_can_run(settings: WorkerSettings) -> None:
    kit = make(settings, OperatorConfig())

    assert (kit.run, kit.summary_model, kit.title_model) == (None, None, None)
    assert "none here" in kit.code
    assert "react.read" in kit.codec.system_prompt


def test_requests_fit_both_the_setting_and_the_model(settings: WorkerSettings) -> None:
    usual = make(settings, OperatorConfig())
    huge = make(settings.model_copy(update={"context_max_tokens": 10_000_000}), OperatorConfig())

    room = usual.traits.context_tokens - settings.max_output_tokens
    assert usual.context.max_tokens == min(80_000, room)
    assert huge.context.max_tokens == room


def test_a_reply_is_no_longer_than_the_model_can_write(
    settings: WorkerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCAL_KEY", "local-secret")
    endpoint = {"protocol": "openai", "base_url": "http://127.0.0.1:9/v1", "key_env": "LOCAL_KEY"}
    card = {"context_tokens": 32_000, "max_output_tokens": 2_000, "price": {"input": 1, "output": 2}}
    config = OperatorConfig.model_validate({"models": {"endpoints": {"local": endpoint}, "cards": {"mine": card}}})

    kit = make(settings.model_copy(update={"model": "local:mine"}), config)

    assert (kit.limits.max_output_tokens, kit.context.max_tokens) == (2_000, 30_000)


@pytest.mark.parametrize("part", ["model", "fallback", "summary_model", "title_model"])
def test_the_cost_of_a_turn_is_known_if_all_of_its_models_have_prices(settings: WorkerSettings, part: str) -> None:
    kit = make(settings, OperatorConfig())
    unpriced = ScriptedModel(traits=ModelTraits("mine", 1_000, images=False, documents=False, provider="openai"))

    assert kit.has_prices
    assert not replace(kit, **{part: unpriced}).has_prices


def test_tools_of_the_operator_share_a_reply_by_their_strategy(settings: WorkerSettings, tmp_path: Path) -> None:
    (tmp_path / "city.py").write_text("def find(name: str) -> str:\n    'Finds.'\n    return name\n")
    settings = settings.model_copy(update={"multi_action": "safe_fanout"})

    def judge(**described: str) -> list[str | None]:
        module = {"alias": "city", "file": tmp_path / "city.py", "tools": {"find": described}}
        with ThreadPoolExecutor(1) as threads:
            specs = [tool.spec for tool in load_tools([ToolModule.model_validate(module)], threads)]
        limits = build_decision_limits(settings, specs)
        assert limits.fanout is not None
        judge = ActionJudge(limits.fanout)
        refusals = [judge.judge(ActionHead("city.find")) for _ in range(2)]
        return [refusal and refusal.kind for refusal in refusals]

    assert judge(strategy="exploration") == [None, None]
    assert judge() == [None, "beside_unknown"]


def test_what_a_reply_may_hold_follows_the_version_and_the_offered_tools(settings: WorkerSettings) -> None:
    tools = offer_tools(build_tool_ports(), SandboxUnavailable("none here"), build_parts()).registry.specs

    off = build_decision_limits(settings, tools)
    older = build_decision_limits(settings.model_copy(update={"agent_version": "v2"}), tools)
    several = build_decision_limits(settings.model_copy(update={"multi_action": "safe_fanout"}), tools)

    assert (off.fanout, off.one_thinking, older.one_thinking) == (None, False, True)
    assert several.fanout is not None
    assert several.fanout.strategies["react.read"] == "exploration"
    assert several.fanout.strategies["react.write"] == "exploitation"
    assert several.fanout.strategies["react.plan"] == "neutral"
    assert "unknown" not in several.fanout.strategies.values()


def test_only_git_gets_the_tokens_of_repositories() -> None:
    manifest = read_manifest(b"""id = "desk"
[knowledge]
repo = "https://git.example/a.git"
token = "b:docs"
""")
    table = BundleTable(git="https://git.example/desk.git", token="b:code")
    secrets = {"docs": "1", "code": "2", "crm": "3"}

    assert without_git_tokens(secrets, manifest, table) == {"crm": "3"}
    assert without_git_tokens(secrets, Manifest(id="desk"), None) == secrets
