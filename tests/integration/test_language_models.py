"""What "Looking into a language model" shows, held to hooks of PyTorch that are placed by hand."""

import contextlib
import functools
import re

import amanda
import pages
import pytest
import torch
from amanda.testing import probes

PAGE = "docs/looking-into-a-language-model.md"
# Rows of unlike lengths, padded on the left as decoders are, with the number of their tokens.
PROMPTS = torch.tensor([[11, 42, 7, 98, 150], [0, 0, 23, 5, 61], [0, 9, 9, 120, 3]])
MASK = (torch.arange(5) >= 5 - torch.tensor([[5], [3], [4]])).long()
POSITIONS = (MASK.cumsum(1) - 1).clamp(min=0)  # which generate makes of the mask, forward does not
# Operators of GPT-2 beside modules that return the same.
SAME = {
    "transformer.wte/embedding": "transformer.wte",
    "transformer.drop/dropout": "transformer.drop",
    "transformer.h.1.ln_1/layer_norm": "transformer.h.1.ln_1",
    "transformer.h.1.attn.resid_dropout/dropout": "transformer.h.1.attn.resid_dropout",
    "transformer.h.1.mlp.c_fc/view#2": "transformer.h.1.mlp.c_fc",
    "transformer.h.1.mlp.act/mul#4": "transformer.h.1.mlp.act",
    "transformer.h.1.mlp.dropout/dropout": "transformer.h.1.mlp",
    "transformer.h.1/add#2": "transformer.h.1",
    "transformer.h.3/add#2": "transformer.h.3",
    "transformer.ln_f/layer_norm": "transformer.ln_f",
    "lm_head/linear": "lm_head",
}
BLOCK = "transformer.h.1/add#2"
GENERATION = {
    "greedy": {"do_sample": False},
    "without a cache": {"do_sample": False, "use_cache": False},
    "sampled": {"do_sample": True},
    "beams": {"do_sample": False, "num_beams": 3},
}


@pytest.fixture(scope="module")
def page():
    return pages.execute(PAGE)


@pytest.fixture(scope="module")
def names(page):
    return page[0]


@pytest.fixture(scope="module")
def model(names):
    return names["model"]


@pytest.fixture(scope="module")
def plain(model):
    """What each of the runs gives without tools."""
    return functools.cache(lambda run: run(model))


@contextlib.contextmanager
def hooked(model, path, hook):
    handle = model.get_submodule(path).register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()


def forward(model):
    with torch.no_grad():
        return [model(PROMPTS, attention_mask=MASK, position_ids=POSITIONS).logits]


def generate(model, **settings):
    """The tokens of a generation, and the scores of each step."""
    torch.manual_seed(0)
    found = model.generate(
        PROMPTS,
        attention_mask=MASK,
        max_new_tokens=3,
        return_dict_in_generate=True,
        output_scores=True,
        **settings,
    )
    return [found.sequences, *found.scores]


def assert_same(found, expected):
    assert len(found) == len(expected)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def assert_other(found, plain):
    assert not all(torch.equal(a, b) for a, b in zip(found, plain, strict=True))


RUNS = {"forward": forward} | {
    f"generate, {name}": (lambda model, settings=settings: generate(model, **settings))
    for name, settings in GENERATION.items()
}
in_every_run = pytest.mark.parametrize("run", RUNS.values(), ids=RUNS.keys())


def test_the_page_prints_what_it_shows(page):
    _, printed = page
    assert len(printed) > 5
    for block in printed:
        assert block.as_shown(), block.found


def test_the_operators_in_its_table_are_there_with_the_shapes_given(model):
    table = re.findall(r"^\| .* \| `(\S+/\S+)` \| .* \| (.*) \|$", pages.text(PAGE), re.MULTILINE)
    sizes = {"B": {3}, "1 or B": {1, 3}, "T": {5}, "T or 1": {5, 1}, "H": {4}, "D": {16}}
    sizes |= {"H·D": {64}, "4·H·D": {256}, "vocabulary": {200}}
    found = {}

    def analyze(ctx):
        found[ctx.op.id] = ctx.outputs[0].shape

    tool = amanda.Tool()
    tool.add_inst_for_op(analyze, require_outputs=True)
    with amanda.apply(tool):
        forward(model)
    assert len(table) > 10
    for id, shape in table:
        pairs = zip(found[id], shape.split(", "), strict=True)
        assert all(size in sizes[word] for size, word in pairs), id


@in_every_run
def test_captures_are_what_hooks_are_given(names, model, run):
    expected = {id: [] for id in SAME}
    with contextlib.ExitStack() as hooks:
        for id, path in SAME.items():
            hook = lambda module, args, y, kept=expected[id]: kept.append(y.clone())  # noqa: E731
            hooks.enter_context(hooked(model, path, hook))
        plain = run(model)
    capture = names["Capture"](*SAME)
    with amanda.apply(capture):
        assert_same(run(model), plain)
    for id in SAME:
        assert expected[id]
        assert_same(capture.kept[id], expected[id])


@in_every_run
def test_a_part_is_left_out_as_by_a_hook(names, model, run):
    id = "transformer.h.1.mlp.dropout/dropout"
    with hooked(model, SAME[id], lambda module, args, output: torch.zeros_like(output)):
        expected = run(model)
    with amanda.apply(names["Change"](id, torch.zeros_like)):
        assert_same(run(model), expected)


@in_every_run
@pytest.mark.parametrize("id", ["transformer.h.1.mlp.c_fc/view#2", BLOCK])
def test_patches_are_those_of_a_hook(names, model, plain, run, id):
    """What is put is made of what the model returned for other prompts, at the last token."""
    other = names["Capture"](id)
    with amanda.apply(other), torch.no_grad():
        model(PROMPTS.flip(1))
    value = other.kept[id][0][0, -1]

    def hook(module, args, output):
        patched = output.clone()
        patched[:, -1] = value
        return patched

    with hooked(model, SAME[id], hook):
        expected = run(model)
    with amanda.apply(names["Patch"](id, -1, value)):
        found = run(model)
    assert_same(found, expected)
    assert_other(found, plain(run))


@in_every_run
def test_steering_is_that_of_a_hook(names, model, plain, run):
    """By hand, the positions of the tokens in a pass are told from how many have been before."""
    vector, rows = torch.randn(64), {3: 1, 9: 3}
    lengths, passes = MASK.sum(1, keepdim=True), []

    def hook(module, args, output):
        times = rows[len(output)]
        end = PROMPTS.shape[1] + len(passes) * bool(passes)
        place = torch.arange(end - output.shape[1], end) - 5  # 0 is the first that is generated
        passes.append(output)
        positions = place + lengths.repeat_interleave(times, 0)
        steered = (positions >= start.repeat_interleave(times, 0)).unsqueeze(-1)
        return torch.where(steered, output + vector, output)

    start = lengths - 1  # the last token of each prompt
    with hooked(model, SAME[BLOCK], hook):
        expected = run(model)
    times = rows[len(passes[0])]
    first = start.repeat_interleave(times, 0).flatten().tolist()
    with amanda.apply(names["Steer"](BLOCK, vector, first)):
        found = run(model)
    assert_same(found, expected)
    assert_other(found, plain(run))


def test_a_step_of_a_generation_is_changed_alone(names, model):
    id, passes = "transformer.h.1.mlp.dropout/dropout", []

    def hook(module, args, output):
        passes.append(output)
        return torch.zeros_like(output) if len(passes) == 2 else None

    with hooked(model, SAME[id], hook):
        expected = generate(model, do_sample=False)
    with amanda.apply(names["Ablate"](id, passes=[1])):
        found = generate(model, do_sample=False)
    assert_same(found, expected)
    plain = generate(model, do_sample=False)
    assert torch.equal(found[1], plain[1])  # the scores of the pass before
    assert_other(found, plain)


def test_the_lens_reads_what_a_hook_reads(names, model):
    expected = {}

    def reader(block):
        def hook(module, args, output):
            last = model.lm_head(model.transformer.ln_f(output[:, -1]))
            probability, token = last.softmax(-1)[0].max(-1)
            expected[block] = int(token), float(probability)

        return hook

    with contextlib.ExitStack() as hooks, torch.no_grad():
        for block in (f"transformer.h.{layer}" for layer in range(4)):
            hooks.enter_context(hooked(model, block, reader(block)))
        model(names["prompt"])
    lens = names["LogitLens"](model, *names["blocks"])
    with amanda.apply(lens), torch.no_grad():
        model(names["prompt"])
    assert lens.guesses == expected


@in_every_run
def test_a_head_that_attends_to_one_token_hands_on_its_value(names, model, run):
    """By hand, the slice of the head in what the projection takes is the value of token 0."""
    values = []

    def keep(module, args, output):  # query, key and value of all heads, side by side
        if output.shape[1] > 1:
            values[:] = [output[:, :1, 128 + 32 : 128 + 48]]

    def put(module, args):
        changed = args[0].clone()
        changed[:, :, 32:48] = values[0]
        return (changed,)

    model.set_attn_implementation("eager")
    try:
        attention = model.transformer.h[0].attn
        handle = attention.c_proj.register_forward_pre_hook(put)
        with hooked(attention, "c_attn", keep):
            expected = run(model)
        handle.remove()
        with amanda.apply(names["WithoutHead"](names["pattern"], 2)):
            found = run(model)
        assert_same(found, expected)
        assert_other(found, run(model))
    finally:
        model.set_attn_implementation("sdpa")


def test_probabilities_are_those_that_the_model_returns(names, model):
    model.set_attn_implementation("eager")
    try:
        capture = names["Capture"](names["pattern"])
        with amanda.apply(capture), torch.no_grad():
            returned = model(PROMPTS, attention_mask=MASK, output_attentions=True).attentions
        assert torch.equal(capture.kept[names["pattern"]][0], returned[0])
    finally:
        model.set_attn_implementation("sdpa")


def test_gradients_are_those_of_hooks_on_tensors(names, model):
    expected = []

    def hook(module, args, output):
        output.register_hook(lambda grad: expected.append(grad.clone()))

    def run():
        model.zero_grad()
        model(PROMPTS, attention_mask=MASK).logits[:, -1, 7].sum().backward()
        return model.transformer.wte.weight.grad.clone()

    with hooked(model, SAME[BLOCK], hook):
        plain = run()
    tool = names["CaptureGradients"](BLOCK)
    with amanda.apply(tool):
        assert torch.equal(run(), plain)
    assert_same(tool.kept[BLOCK], expected)


def test_a_vector_that_requires_a_gradient_gets_it_where_the_routine_is_differentiated(
    names, model
):
    class Learned(names["Steer"]):
        def analyze(self, ctx):
            if ctx.op.id == self.id:
                ctx.insert_after_op(self.function, outputs=[0], differentiable=True)

    def gradient(vector, scope):
        with scope:
            model(PROMPTS, attention_mask=MASK).logits[:, -1, 7].sum().backward()
        return vector.grad

    by_hand, by_tool = (torch.full((64,), 0.5, requires_grad=True) for _ in range(2))
    hook = hooked(model, SAME[BLOCK], lambda module, args, output: output + by_hand)
    expected = gradient(by_hand, hook)
    found = gradient(by_tool, amanda.apply(Learned(BLOCK, by_tool)))
    assert torch.equal(found, expected)


def test_what_a_routine_raises_stops_the_model_and_leaves_it_as_it_is(names, model):
    class Stop(Exception):
        pass

    def stop(output):
        raise Stop

    later = names["Capture"]("transformer.h.2/add#2")
    tool = probes.after("layer_norm", stop)
    plain = forward(model)
    with pytest.raises(amanda.RoutineError) as error, amanda.apply(later, tool):
        forward(model)
    assert isinstance(error.value.__cause__, Stop)
    assert later.kept == {"transformer.h.2/add#2": []}
    assert_same(forward(model), plain)


class TestEncoder:
    """MiniLM, in a batch of sentences of unlike lengths."""

    @pytest.fixture
    def batch(self, names):
        return names["tokenizer"](
            [names["first"], "Rain is likely.", names["second"]], padding=True, return_tensors="pt"
        )

    def embed(self, names, batch):
        with torch.no_grad():
            return list(names["encoder"](**batch).values())

    @pytest.mark.parametrize("layer", [0, 3, 5])
    def test_captures_are_what_hooks_are_given(self, names, batch, layer):
        kept = []
        path, id = f"encoder.layer.{layer}", names["layers"][layer]
        with hooked(names["encoder"], path, lambda module, args, y: kept.append(y.clone())):
            plain = self.embed(names, batch)
        capture = names["Capture"](id)
        with amanda.apply(capture):
            assert_same(self.embed(names, batch), plain)
        assert_same(capture.kept[id], kept)

    @pytest.mark.parametrize("layer", [0, 3, 5])
    def test_patches_are_those_of_a_hook(self, names, batch, layer):
        value = torch.randn(3, 384)

        def hook(module, args, output):
            patched = output.clone()
            patched[:, 4] = value
            return patched

        with hooked(names["encoder"], f"encoder.layer.{layer}", hook):
            expected = self.embed(names, batch)
        with amanda.apply(names["Patch"](names["layers"][layer], 4, value)):
            found = self.embed(names, batch)
        assert_same(found, expected)
        assert_other(found, self.embed(names, batch))
