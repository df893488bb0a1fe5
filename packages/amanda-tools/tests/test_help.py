"""What a newcomer reads: help, the list of tools, and what a shell completes."""

import os
import re
import subprocess
import sys

import click
import pytest
from amanda_tools.command import commands

NAMES = sorted(commands.commands)


def shown(in_process, folder, *arguments):
    code, out, _ = in_process(folder, *arguments)
    assert code == 0
    return out


def test_the_list_of_commands_has_whole_sentences(tmp_path, in_process):
    listed = shown(in_process, tmp_path, "--help").partition("Commands:\n")[2].partition("\n\n")[0]
    rows = [re.fullmatch(r"  (\S+) +(.*)", line).groups() for line in listed.splitlines()]
    assert [name for name, _ in rows] == NAMES
    for _, text in rows:
        assert re.fullmatch(r"[A-Z].*[^.]\.", text), text  # no "..." of what was cut


@pytest.mark.parametrize("name", NAMES)
def test_each_option_is_explained_in_sentences(name):
    for parameter in commands.commands[name].params:
        if isinstance(parameter, click.Option):
            assert re.fullmatch(r"[A-Z].*\.", parameter.help), parameter.help


def test_tools_are_listed_in_sentences_that_are_aligned(tmp_path, in_process):
    lines = shown(in_process, tmp_path, "tools").partition("\n\n")[0].splitlines()
    texts = [re.fullmatch(r" *\S+ {2,}(\S.*)", line)[1] for line in lines]
    assert len({len(line) - len(text) for line, text in zip(lines, texts, strict=True)}) == 1
    for text in texts:
        assert re.fullmatch(r"['A-Z].*[.]", text), text
        assert "`" not in text


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("amanda new", ["new-tool"]),
        ("amanda run --tool prune_a", ["prune_activations", "prune_attention"]),
        ("amanda run --verb", ["--verbose"]),
    ],
)
def test_a_shell_completes_commands_options_and_tools(monkeypatch, capsys, words, completed):
    monkeypatch.setenv("_AMANDA_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
    with pytest.raises(SystemExit):
        commands.main(prog_name="amanda", standalone_mode=False)
    assert capsys.readouterr().out.splitlines() == [f"plain,{word}" for word in completed]


def test_the_line_for_a_shell_prints_its_script(tmp_path):
    done = subprocess.run(
        [os.path.join(os.path.dirname(sys.executable), "amanda")],
        env={**os.environ, "_AMANDA_COMPLETE": "zsh_source"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("#compdef amanda")
