"""Ctrl-C at the wrong moment."""

import signal

import pytest
from amanda_tools.interrupts import uninterrupted


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
