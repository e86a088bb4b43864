"""Function templates about numbers. The notation is explained in `templates.py`."""

TEXT = """
clamp | clamp limit bound | keep a number between two bounds | int low:nat high:pos
    return max($b, min($a, $c))

scale | scale grow multiply | multiply by $K | int
    return $a * $K

discount | discount reduce cut | take a percentage off | nat pct
    return $a - $a * $b // 100

add_tax | tax charge raise | add $K percent | nat
    return $a + $a * $K // 100

distance | distance gap diff | distance between two numbers | int int
    return abs($a - $b)

middle | middle center mean | whole mean of two numbers | int int
    return ($a + $b) // 2

larger | larger bigger pick | the larger of two numbers | int int
    if $a > $b:
        return $a
    return $b

round_up | round ceil fill | round up to a multiple of $K | int
    return -(-$a // $K) * $K

! round_down | floor trim align | round down to a multiple of $K | int
    return $a // $K * $K

last_digit | digit last unit | the last digit | int
    return abs($a) % 10

wrap | wrap cycle turn | wrap around at $K | wide
    return $a % $K

within | within between inside | whether a number lies between two bounds | int low:int high:nat
    return $b <= $a <= $c

! outside | outside beyond off | whether a number lies outside two bounds | int low:int high:nat
    return $a < $b or $a > $c

is_even | even paired halves | whether a number is even | int
    return $a % 2 == 0

is_multiple | divides fits splits | whether a number is a multiple of $N | nat
    return $a % $N == 0

shift | shift add move | add $K | int
    return $a + $K

drop_to_zero | spend take lower | subtract, but never below zero | nat nat
    return max($a - $b, 0)

square_sum | squares norm energy | sum of two squares | tiny tiny
    return $a * $a + $b * $b

! area | area cover space | width times height less $K | pos high:pos
    return $a * $b - $K

perimeter | border edge around | border length of a box | pos high:pos
    return 2 * ($a + $b)

minutes | minutes time span | hours and minutes as minutes | small nat
    return $a * 60 + $b

fee | fee charge cost | add $L when above $K | wide
    if $a > $K:
        return $a + $L
    return $a

grade | grade check mark | pass from $K on, else fail | wide
    if $a >= $K:
        return "pass"
    return "fail"

level | level rank class | high above 20, mid above 10, else low | wide
    if $a > 20:
        return "high"
    if $a > 10:
        return "mid"
    return "low"

! triangle | triangle series stack | sum of 1 up to a number | pos
    return $a * ($a + 1) // 2

digit_sum | digits sum check | sum of the digits | big
    $t = 0
    for $w in str($a):
        $t = $t + int($w)
    return $t

count_down | countdown steps down | numbers from a number down to 1 | small
    return list(range($a, 0, -1))

order_two | order sort arrange | two numbers in rising order | int int
    if $a > $b:
        return $b, $a
    return $a, $b

! penalty | penalty fine loss | take $L off when below $K | wide
    if $a < $K:
        return $a - $L
    return $a

need | need missing lack | how many are missing to a goal | nat goal:nat
    if $a >= $b:
        return 0
    return $b - $a

sum_to | sumto upto series | sum of numbers below a bound | small
    $t = 0
    for $p in range($a):
        $t += $p
    return $t
"""
