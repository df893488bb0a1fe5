"""Ctrl-C at the wrong moment."""

import multiprocessing
import os
import signal
import time

import pytest
from amanda_tools.interrupts import Terminated, terminable, uninterrupted


def test_ctrl_c_waits_until_the_block_is_done():
    done = []

    def block():
        with uninterrupted():
            signal.raise_signal(signal.SIGINT)
            done.append("the rest")

    with pytest.raises(KeyboardInterrupt):
        block()
    assert done == ["the rest"]


def test_without_ctrl_c_nothing_happens():
    before = signal.getsignal(signal.SIGINT)
    with uninterrupted():
        pass
    assert signal.getsignal(signal.SIGINT) is before


def test_a_program_that_ignores_ctrl_c_goes_on_ignoring_it():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with uninterrupted():
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_error_in_the_block_comes_out():
    with pytest.raises(ZeroDivisionError), uninterrupted():
        raise ZeroDivisionError


def test_sigterm_waits_until_the_block_is_done():
    done = []

    def block():
        with terminable(), uninterrupted():
            signal.raise_signal(signal.SIGTERM)
            done.append("the rest")

    with pytest.raises(Terminated):
        block()
    assert done == ["the rest"]


class TestTerminable:
    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
    def test_a_signal_that_would_end_the_program_unwinds_it(self, number):
        undone = []

        def program():
            try:
                signal.raise_signal(number)
            finally:
                undone.append(number)

        with terminable() as came, pytest.raises(Terminated) as caught:
            program()
        assert (undone, came, caught.value.signal) == ([number], [number], number)
        assert caught.value.code == 128 + number

    def test_everything_is_as_before_afterwards(self):
        with terminable():
            pass
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL

    @pytest.mark.parametrize("handler", [signal.SIG_IGN, lambda *_: None])
    def test_what_the_program_has_decided_itself_holds(self, handler):
        signal.signal(signal.SIGTERM, handler)
        try:
            with terminable() as came:
                signal.raise_signal(signal.SIGTERM)
            assert came == []
            assert signal.getsignal(signal.SIGTERM) is handler
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def test_what_the_program_decides_within_stays(self):
        def handler(*_):
            pass

        try:
            with terminable():
                signal.signal(signal.SIGTERM, handler)
            assert signal.getsignal(signal.SIGTERM) is handler
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    @pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
    def test_a_forked_process_ends_at_once(self):
        with terminable():
            child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
            child.start()
            child.terminate()
            child.join()
        assert child.exitcode == -signal.SIGTERM

    @pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
    def test_a_forked_process_ends_at_once_however_early_the_signal_comes(self):
        with terminable() as came:
            for _ in range(100):
                child = os.fork()
                if child == 0:
                    time.sleep(60)
                    os._exit(0)
                os.kill(child, signal.SIGTERM)
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
        assert came == []

    @pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
    def test_a_fork_leaves_the_program_s_own_blocking_of_signals_as_it_was(self):
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP])
        try:
            with terminable():
                child = os.fork()
                blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
                if child == 0:
                    os._exit(blocked != {signal.SIGHUP})
                assert os.waitpid(child, 0)[1] == 0
                assert blocked == {signal.SIGHUP}
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
