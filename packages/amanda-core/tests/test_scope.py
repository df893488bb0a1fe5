"""The `with amanda.apply(...)` block, apart from any backend."""

import asyncio
import contextlib
import dataclasses
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import amanda
import pytest
from amanda import AmandaError, Tool
from amanda.driving import known_drivers
from amanda.testing.scopes import in_a_thread
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy_backend import framework
from numpy_backend.framework import Tensor


class Multiplying(Tool):
    """Doubles the result of every multiplication, and its gradient."""

    def __init__(self, name="tool", log=None):
        super().__init__()
        self.label = name
        self.log = [] if log is None else log
        self.add_inst_for_op(lambda ctx: ctx.insert_after_op(lambda y: y * 2), ops=["multiply"])
        self.add_inst_for_gradient(
            lambda ctx: ctx.insert_on_grad_outputs(lambda g: g * 2), ops=["multiply"]
        )

    def on_exit(self):
        self.log.append(self.label)


def squared(x):
    return framework.multiply(x, x)


def tensor(value):
    return Tensor(float(value), needs_gradient=True)


def gradient(output, x):
    (found,) = framework.gradients(output, [x])
    return float(found.array)


class TestApply:
    def test_a_class_is_not_a_tool(self):
        with (
            pytest.raises(TypeError, match=r"write Multiplying\(\.\.\.\)"),
            amanda.apply(Multiplying),
        ):
            pass

    def test_what_is_no_tool_at_all(self):
        with pytest.raises(TypeError, match="takes tools, not 'flops'"), amanda.apply("flops"):
            pass

    def test_a_list_of_tools_is_to_be_unpacked(self):
        with pytest.raises(TypeError, match=r"write amanda.apply\(\*tools\)"), amanda.apply([]):
            pass

    def test_a_tool_that_is_equal_to_others_is_refused(self):
        @dataclasses.dataclass
        class Equal(Tool):
            threshold: float = 0.5

        with pytest.raises(TypeError, match=r"Equal defines __eq__"), amanda.apply(Equal()):
            pass

    def test_without_tools_nothing_happens(self):
        with amanda.apply():
            assert squared(tensor(3)).array == 9

    def test_it_serves_as_a_decorator(self):
        @amanda.apply(Multiplying())
        def run():
            return float(squared(tensor(3)).array)

        assert [run(), run()] == [18, 18]
        assert squared(tensor(3)).array == 9

    @pytest.mark.parametrize("kind", ["generator", "coroutine", "generator of a coroutine"])
    def test_it_decorates_no_function_whose_code_runs_after_the_call(self, kind):
        def generator():
            yield

        async def coroutine():
            pass

        async def both():
            yield

        function = {"generator": generator, "coroutine": coroutine}.get(kind, both)
        with pytest.raises(TypeError, match=rf"{function.__name__}.* write a with statement in it"):
            amanda.disabled()(function)

    def test_it_may_be_entered_again(self):
        scope = amanda.apply(Multiplying())
        for _ in range(2):
            with scope:
                assert squared(tensor(3)).array == 18
                with scope:
                    assert squared(tensor(3)).array == 18
                assert squared(tensor(3)).array == 18
            assert squared(tensor(3)).array == 9

    def test_each_thread_is_in_its_own(self):
        scope, found = amanda.apply(Multiplying()), []

        def elsewhere():
            with scope:
                found.append(squared(tensor(3)).array)
            found.append(squared(tensor(3)).array)

        with scope:
            in_a_thread(elsewhere)
            assert squared(tensor(3)).array == 18
        assert found == [18, 9]

    def test_left_in_another_thread_it_stays_as_it_is(self):
        scope = amanda.apply(Multiplying())
        with scope:
            with pytest.raises(AmandaError, match="leave it in the thread that entered it"):
                in_a_thread(lambda: scope.__exit__(None, None, None))
            assert squared(tensor(3)).array == 18
        assert squared(tensor(3)).array == 9
        with pytest.raises(AmandaError, match="is left that is not entered"):
            scope.__exit__(None, None, None)

    def test_tools_are_told_when_it_is_left(self):
        log = []
        outer, inner = Multiplying("outer", log), Multiplying("inner", log)
        with amanda.apply(outer):
            with amanda.apply(inner, outer):
                assert log == []
            assert log == ["inner"]
        assert log == ["inner", "outer"]

    def test_a_tool_is_told_of_each_driver_when_its_own_scope_begins(self):
        class Entering(Tool):
            def __init__(self):
                super().__init__()
                self.told = []

            def on_enter(self, driver):
                self.told.append(driver)

        outer, inner = Entering(), Entering()
        with amanda.apply(outer), amanda.apply(inner, outer):
            assert outer.told == inner.told == known_drivers() != []

    def test_every_tool_is_told_also_after_an_exception_and_if_one_fails(self):
        class Failing(Multiplying):
            def on_exit(self):
                super().on_exit()
                raise OSError("disk full")

        log = []
        tools = [Multiplying("one", log), Failing("two", log), Multiplying("three", log)]
        with pytest.raises(OSError, match="disk full") as raised, amanda.apply(*tools):
            raise ZeroDivisionError
        assert sorted(log) == ["one", "three", "two"]
        assert isinstance(raised.value.__context__, ZeroDivisionError)

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no other way to be forked")
    @pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
    def test_a_forked_process_does_not_tell_the_tools_that_it_leaves(self):
        log = []
        process = os.getpid()
        try:
            with amanda.apply(Multiplying("tool", log)):
                child = os.fork()
        finally:
            if os.getpid() != process:
                os._exit(len(log))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert log == ["tool"]


class Labelled(Tool):
    """Notes its label at every multiplication."""

    def __init__(self, label, log):
        super().__init__()
        self.add_inst_for_op(
            lambda ctx: ctx.insert_before_op(lambda *_: log.append(label)), ops=["multiply"]
        )


RUN = "run"
BLOCKS = st.recursive(
    st.just(RUN),
    lambda inside: st.tuples(
        st.sampled_from([0, 1, 2, "disabled", "enabled", "cache_disabled", "cache_enabled"]),
        st.lists(inside, max_size=4),
        st.booleans(),
    ),
    max_leaves=12,
)


class TestNesting:
    @settings(deadline=None)
    @given(blocks=st.lists(BLOCKS, max_size=4))
    def test_each_run_has_the_tools_around_it_and_no_others(self, blocks):
        log = []
        tools = [Labelled(label, log) for label in range(3)]
        expected = []

        def walk(block, around, enabled):
            if block == RUN:
                squared(tensor(3))
                expected.extend(around if enabled else [])
                return
            kind, inside, fails = block
            if isinstance(kind, int):
                scope = amanda.apply(tools[kind])
                around = [*around, *({kind} - {*around})]
            else:
                scope = getattr(amanda, kind)()
                enabled = {"disabled": False, "enabled": True}.get(kind, enabled)
            with contextlib.suppress(ZeroDivisionError), scope:
                for one in inside:
                    walk(one, around, enabled)
                if fails:
                    raise ZeroDivisionError

        for block in blocks:
            walk(block, [], enabled=True)
        assert log == expected
        assert amanda.is_enabled()
        assert amanda.is_cache_enabled()


class TestEndingEarly:
    def leave(self, error, tool):
        with contextlib.suppress(BaseException), amanda.apply(tool):
            raise error

    @pytest.mark.parametrize("error", [ZeroDivisionError(), KeyboardInterrupt()])
    def test_a_tool_is_told_ahead_of_its_exit_what_cut_its_scope_short(self, error):
        class Told(Tool):
            def on_exit(self):
                self.told = self.cut_short

        tool = Told()
        self.leave(error, tool)
        assert tool.told == (type(error).__name__,)

    @pytest.mark.parametrize("error", [SystemExit(1), GeneratorExit()])
    def test_a_program_may_end_by_itself(self, error):
        tool = Tool()
        self.leave(error, tool)
        assert tool.cut_short == ()

    def test_only_the_scopes_that_are_left_count(self):
        outer, inner = Tool(), Tool()
        with amanda.apply(outer):
            self.leave(ZeroDivisionError(), inner)
        assert (outer.cut_short, inner.cut_short) == ((), ("ZeroDivisionError",))


class TestInterleaving:
    """Blocks that are not left in the opposite order of entering, as those of generators."""

    @staticmethod
    def held(block):
        with block:
            yield

    def run(self, log):
        log.clear()
        squared(tensor(1))
        return list(log)

    def test_one_that_is_left_early_takes_only_its_own_tools_with_it(self):
        log = []
        outer, inner = (Labelled(name, log) for name in ("outer", "inner"))
        generator = self.held(amanda.apply(outer))
        next(generator)
        with amanda.apply(inner):
            assert self.run(log) == ["outer", "inner"]
            generator.close()
            assert self.run(log) == ["inner"]
        assert self.run(log) == []

    def test_a_tool_of_two_of_them_stays_as_long_as_one_is_open(self):
        log = []
        tool = Labelled("tool", log)
        generator = self.held(amanda.apply(tool))
        next(generator)
        with amanda.apply(tool):
            generator.close()
            assert self.run(log) == ["tool"]
        assert self.run(log) == []

    def test_a_switch_that_is_left_early(self):
        generator = self.held(amanda.disabled())
        next(generator)
        with amanda.cache_disabled():
            generator.close()
            assert amanda.is_enabled()
            assert not amanda.is_cache_enabled()
        assert amanda.is_enabled()
        assert amanda.is_cache_enabled()

    def test_tasks_of_one_thread(self):
        log = []

        async def task(name, naps):
            with amanda.apply(Labelled(name, log)):
                for _ in range(naps):
                    await asyncio.sleep(0)

        async def main():
            await asyncio.gather(task("a", 2), task("b", 4), task("c", 3))

        asyncio.run(main())
        assert self.run(log) == []

    def test_leaving_in_another_thread_is_refused(self):
        generator = self.held(amanda.apply(Labelled("tool", [])))
        with ThreadPoolExecutor(1) as pool:
            pool.submit(next, generator).result()
            with pytest.raises(AmandaError, match="another thread"):
                generator.close()


class TestSwitches:
    def test_they_are_on_by_default(self):
        assert amanda.is_enabled()
        assert amanda.is_cache_enabled()

    @pytest.mark.parametrize(
        ("off", "on", "is_on"),
        [
            (amanda.disabled, amanda.enabled, amanda.is_enabled),
            (amanda.cache_disabled, amanda.cache_enabled, amanda.is_cache_enabled),
        ],
    )
    def test_they_nest_and_restore(self, off, on, is_on):
        with off():
            assert not is_on()
            with on():
                assert is_on()
                with off():
                    assert not is_on()
            assert not is_on()
            with pytest.raises(ZeroDivisionError), on():
                raise ZeroDivisionError
            assert not is_on()
        assert is_on()

    def test_a_scope_inherits_them(self):
        with amanda.disabled(), amanda.cache_disabled(), amanda.apply(Multiplying()):
            assert not amanda.is_enabled()
            assert not amanda.is_cache_enabled()

    def test_they_are_those_of_a_thread(self):
        seen = []

        def look():
            seen.append((amanda.is_enabled(), amanda.is_cache_enabled()))

        with amanda.disabled(), amanda.cache_disabled():
            thread = threading.Thread(target=look)
            thread.start()
            thread.join()
        assert seen == [(True, True)]


class TestBackward:
    """Which tools see a backward that does not run where its forward did."""

    def test_in_the_same_scope(self):
        x = tensor(3)
        with amanda.apply(Multiplying()):
            assert gradient(squared(x), x) == 12

    def test_after_the_scope(self):
        x = tensor(3)
        with amanda.apply(Multiplying()):
            y = squared(x)
        assert y.array == 18
        assert gradient(y, x) == 6

    def test_of_a_forward_before_the_scope(self):
        x = tensor(3)
        y = squared(x)
        with amanda.apply(Multiplying()):
            assert gradient(y, x) == 6

    def test_in_a_disabled_block(self):
        x = tensor(3)
        with amanda.apply(Multiplying()):
            y = squared(x)
            with amanda.disabled():
                assert gradient(y, x) == 6

    def test_in_the_outer_scope_of_its_forward(self):
        x = tensor(3)
        with amanda.apply(Multiplying()):
            with amanda.apply(Multiplying()):
                y = squared(x)
            assert y.array == 36
            assert gradient(y, x) == 12

    def test_in_another_scope(self):
        x = tensor(3)
        with amanda.apply(Multiplying()):
            y = squared(x)
        with amanda.apply(Multiplying()):
            assert gradient(y, x) == 6


class TestVocabularies:
    def test_a_tool_for_a_backend_that_is_not_there_sees_nothing(self):
        tool = Tool(namespace="amanda/pytorch")
        tool.add_inst_for_op(lambda ctx: 1 / 0)
        with amanda.apply(tool):
            squared(tensor(3))

    def test_a_vocabulary_without_a_map_closes_the_scope_again(self):
        tool = Tool(namespace="onnx")
        tool.add_inst_for_op(print)
        doubling = Multiplying()
        with amanda.apply(doubling):
            missing = pytest.raises(amanda.MissingContextMapError, match="amanda-contextmap")
            with missing, amanda.apply(tool):
                pass
            assert squared(tensor(3)).array == 18
        assert squared(tensor(3)).array == 9


class TestInRoutines:
    """Scopes that routines open and leave; what is active in them is in the conformance suite."""

    @staticmethod
    def before_multiplying(routine):
        tool = Tool()
        tool.add_inst_for_op(
            lambda ctx: ctx.insert_before_op(lambda *_: routine()), ops=["multiply"]
        )
        return tool

    def test_a_tool_that_is_in_force_around_the_routine_is_not_told_to_leave(self):
        log, entered = [], []
        tool = Multiplying("tool", log)

        def opens():
            if not entered:
                entered.append(True)
                with amanda.apply(tool):
                    assert squared(tensor(3)).array == 18

        with amanda.apply(tool, self.before_multiplying(opens)):
            assert squared(tensor(3)).array == 18
            assert log == []
        assert entered
        assert log == ["tool"]

    def test_a_scope_that_is_left_open_is_in_force_after_the_routine_with_those_around_it(self):
        log, stack = [], contextlib.ExitStack()
        scopes = [amanda.apply(Labelled("inner", log))]

        def opens():
            if scopes:
                stack.enter_context(scopes.pop())

        opens = self.before_multiplying(opens)
        with amanda.apply(Labelled("outer", log), opens):
            squared(tensor(1))
            log.clear()
            squared(tensor(1))
            assert log == ["outer", "inner"]
            stack.close()
            squared(tensor(1))
            assert log == ["outer", "inner", "outer"]

    def test_a_routine_may_leave_the_scope_around_it(self):
        log, stack = [], contextlib.ExitStack()
        stack.enter_context(amanda.apply(self.before_multiplying(stack.close)))
        stack.enter_context(amanda.apply(Labelled("tool", log)))
        squared(tensor(1))
        log.clear()
        assert squared(tensor(3)).array == 9
        assert log == []
